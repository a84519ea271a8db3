-- Writes without changing anything, so that a WAIT behind it covers all that was written before it on that server.
-- keys: key
-- args: rid
-- returns: {'T', rid, expiry_ms (0: there is no such key)}
-- invariant: the key keeps its value, and its expiry is the same or a moment later: PTTL is read before the clock.
local left = call('PTTL', KEYS[1])
--@include _clock
if left > 0 then
  call('PEXPIREAT', KEYS[1], string.format('%.0f', now_ms + left))
end
return {'T', RID, left > 0 and now_ms + left or 0}
