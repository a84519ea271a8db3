-- Opens a session.
-- keys: session, sessions (of one client)
-- args: id, ttl_ms, most, rid
-- returns: {'O', rid, now_ms} | {'L', rid, count} (the client has `most`)
-- invariant: a session that is there already keeps what it holds, no expiry falls, and nothing is opened beyond `most`.
local id, ttl_ms, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local SESSION, SESSIONS = KEYS[1], KEYS[2]
call('HLEN', SESSION)
local left, all_left = call('PTTL', SESSION), call('PTTL', SESSIONS)
--@include _clock
local now, expiry = string.format('%.0f', now_ms), string.format('%.0f', now_ms + ttl_ms)
local ended = call('ZRANGEBYSCORE', SESSIONS, '-inf', now, 'LIMIT', 0, 1000)
local count = call('ZCOUNT', SESSIONS, '(' .. now, '+inf')
if not call('ZSCORE', SESSIONS, id) and count >= most then
  return {'L', RID, count}
end
call('HSET', SESSION, 'ttl_ms', string.format('%.0f', ttl_ms))
if left < ttl_ms then
  call('PEXPIREAT', SESSION, expiry)
end
call('ZADD', SESSIONS, 'GT', expiry, id)
if all_left < ttl_ms then
  call('PEXPIREAT', SESSIONS, expiry)
end
-- Last: a key that loses its last member is gone. This session may be one that had ended.
for _, other in ipairs(ended) do
  if other ~= id then
    call('ZREM', SESSIONS, other)
  end
end
return {'O', RID, now_ms}
