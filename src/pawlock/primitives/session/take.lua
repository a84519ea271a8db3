-- Records that a grant was force-released, for a client whose channel is not known.
-- keys: taken
-- args: tag (a digest of the grant), life_ms, rid
-- returns: {'N', rid, now_ms}
-- invariant: recording it again changes nothing, and all records expire with their key.
local TAKEN, tag = KEYS[1], ARGV[1]
local left = call('PTTL', TAKEN)
--@include _clock
local life_ms = tonumber(ARGV[2])
call('ZADD', TAKEN, string.format('%.0f', now_ms + life_ms), tag)
if left < life_ms then
  call('PEXPIREAT', TAKEN, string.format('%.0f', now_ms + life_ms))
end
-- Last: a key that loses its last member is gone.
call('ZREMRANGEBYSCORE', TAKEN, '-inf', string.format('%.0f', now_ms))
return {'N', RID, now_ms}
