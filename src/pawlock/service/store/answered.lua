-- Keeps the answer of a request, or takes the request back so that it may be asked anew.
-- keys: request
-- args: token (what it began with), attempt, status ('' takes it back), answer, life_ms, rid
-- returns: {'A', rid, done} (of taking back: whether nobody else goes on with the token)
-- invariant: only who began it with this token changes it, only the latest attempt takes it back, the first answer
--   stays, and no expiry falls.
local token, attempt, status, answer, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local seen, left = call('HMGET', KEYS[1], 'token', 'status', 'attempt'), call('PTTL', KEYS[1])
--@include _clock
if seen[1] ~= token then
  -- Nobody can come and go on with the token of a request that is not known.
  return {'A', RID, status == '' and 1 or 0}
end
if seen[2] then
  return {'A', RID, 0}
end
if status == '' then
  if seen[3] ~= attempt then
    return {'A', RID, 0}
  end
  call('DEL', KEYS[1])
  return {'A', RID, 1}
end
-- Takes nothing away: a server without memory then lets the rest pass.
call('HDEL', KEYS[1], '')
if left < life_ms then
  call('PEXPIREAT', KEYS[1], string.format('%.0f', now_ms + life_ms))
end
call('HSET', KEYS[1], 'status', status, 'answer', answer)
return {'A', RID, 1}
