-- An election: the mutex, and who wants to hear of each change of the leader. Its type is checked before anything
-- is written.
local OBSERVERS = KEYS[#KEYS]
call('ZCARD', OBSERVERS)
local leader_before = call('GET', NAME)

-- Wakes the observers if somebody else leads now, or nobody: in a slot that moves to another node of a cluster, a name
-- that was deleted in this run cannot even be read.
local function tell(reply)
  if redis.pcall('GET', NAME) ~= leader_before then
    if not now_ms then
--@include _clock
    end
    wake(call('ZRANGE', OBSERVERS, 0, -1), 0, now_ms)
  end
  return reply
end
