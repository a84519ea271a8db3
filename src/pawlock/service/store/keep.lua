-- Keeps a session alive, and says what it holds, for the caller to renew.
-- keys: session
-- args: rid
-- returns: {'K', rid, now_ms, ttl_ms, {token, what, ...}} | {'S', rid} (there is no such session)
-- invariant: a session that ended is never opened again, and no expiry falls. Its first write takes nothing away: a server
--   without memory then lets the rest pass.
local SESSION = KEYS[1]
local held = call('HGETALL', SESSION)
local left = call('PTTL', SESSION)
--@include _clock
local ttl_ms, listed = nil, {}
for at = 1, #held, 2 do
  if held[at] == 'ttl_ms' then
    ttl_ms = tonumber(held[at + 1])
  else
    listed[#listed + 1] = held[at]
    listed[#listed + 1] = held[at + 1]
  end
end
if not ttl_ms then
  return {'S', RID}
end
call('HDEL', SESSION, '')
if left < ttl_ms then
  call('PEXPIREAT', SESSION, string.format('%.0f', now_ms + ttl_ms))
end
return {'K', RID, now_ms, ttl_ms, listed}
