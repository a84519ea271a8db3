-- Ends an observation, and wakes the observer if it sleeps: another thread of it says so.
-- keys: observers
-- args: token, channel (that it was noted with), rid
-- returns: {'A', rid}
-- invariant: it takes one observer away and touches nothing else.
--@include _gate
--@include _clock
local member = ARGV[1] .. ' ' .. ARGV[2]
if call('ZREM', KEYS[1], member) == 1 then
  wake({member}, 0, now_ms)
end
return {'A', RID}
