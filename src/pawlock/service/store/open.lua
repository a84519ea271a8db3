-- Opens a session.
-- keys: session
-- args: ttl_ms, rid
-- returns: {'O', rid, now_ms}
-- invariant: a session that is there already keeps what it holds, and no expiry falls.
local ttl_ms, SESSION = tonumber(ARGV[1]), KEYS[1]
local left = call('PTTL', SESSION)
--@include _clock
call('HSET', SESSION, 'ttl_ms', string.format('%.0f', ttl_ms))
if left < ttl_ms then
  call('PEXPIREAT', SESSION, string.format('%.0f', now_ms + ttl_ms))
end
return {'O', RID, now_ms}
