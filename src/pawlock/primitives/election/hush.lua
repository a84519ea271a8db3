-- Ends an observation, and wakes the observer if it sleeps: another of its threads asked for that.
-- keys: observers
-- args: token, channel (that it was registered with), rid
-- returns: {'A', rid}
-- invariant: it removes one observer and touches nothing else.
--@include _gate
--@include _clock
local member = ARGV[1] .. ' ' .. ARGV[2]
if call('ZREM', KEYS[1], member) == 1 then
  wake({member}, 0, now_ms)
end
return {'A', RID}
