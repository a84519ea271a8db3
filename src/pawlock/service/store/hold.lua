-- Notes a granted lease: for its client's limit, and in its session.
-- keys: holds, session
-- args: token, what, life_ms, most, bound (1: in the session), rid
-- returns: {'G', rid, now_ms} | {'L', rid, count} (the client has `most`) | {'S', rid} (there is no such session)
-- invariant: a token counts once however often it is sent, nothing is noted beyond `most` or in a session that is
--   not there, and no expiry falls.
local token, what, life_ms, most, bound = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local MINE, SESSION = KEYS[1], KEYS[2]
local there = call('HEXISTS', SESSION, 'ttl_ms') == 1
local mine_left = call('PTTL', MINE)
--@include _clock
local now = string.format('%.0f', now_ms)
local ended = call('ZRANGEBYSCORE', MINE, '-inf', now, 'LIMIT', 0, 1000)
local count = call('ZCOUNT', MINE, '(' .. now, '+inf')
if bound and not there then
  return {'S', RID}
end
if not call('ZSCORE', MINE, token) and count >= most then
  return {'L', RID, count}
end
local expiry = string.format('%.0f', now_ms + life_ms)
call('ZADD', MINE, 'GT', expiry, token)
if mine_left < life_ms then
  call('PEXPIREAT', MINE, expiry)
end
if bound then
  call('HSET', SESSION, token, what)
end
-- Last: a key that loses its last member is gone. What is noted may be what had ended.
for _, other in ipairs(ended) do
  if other ~= token then
    call('ZREM', MINE, other)
  end
end
return {'G', RID, now_ms}
