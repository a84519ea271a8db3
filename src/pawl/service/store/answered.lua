-- Keeps the answer of a request, or takes the request back so that it may be asked anew.
-- keys: request
-- args: token (what it began with), status ('' takes it back), answer, life_ms, rid
-- returns: {'A', rid, changed}
-- invariant: only who began it with this token changes it, the first answer stays, and no expiry falls.
local token, status, answer, life_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local seen, left = call('HMGET', KEYS[1], 'token', 'status'), call('PTTL', KEYS[1])
read_clock()
if seen[1] ~= token or seen[2] then
  return {'A', RID, 0}
end
if status == '' then
  call('DEL', KEYS[1])
  return {'A', RID, 1}
end
if left < life_ms then
  call('PEXPIREAT', KEYS[1], string.format('%.0f', now_ms + life_ms))
end
call('HSET', KEYS[1], 'status', status, 'answer', answer)
return {'A', RID, 1}
