-- Begins a request that is to happen once, or says how far it is.
-- keys: request
-- args: body (its hash), token (for what it asks), life_ms, rid
-- returns: {'N', rid, token, attempt} (new) | {'P', rid, token, attempt} (begun before) | {'D', rid, status, answer}
--   | {'M', rid}
-- invariant: the first body and token stay until the request was answered or taken back; another body is told 'M'. Who
--   comes later has the higher attempt, and the say about what was begun.
local body, token, life_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local seen = call('HMGET', KEYS[1], 'body', 'token', 'status', 'answer')
--@include _clock
if not seen[1] then
  call('HSET', KEYS[1], 'body', body, 'token', token, 'attempt', '1')
  call('PEXPIREAT', KEYS[1], string.format('%.0f', now_ms + life_ms))
  return {'N', RID, token, 1}
end
if seen[1] ~= body then
  return {'M', RID}
end
if seen[3] then
  return {'D', RID, seen[3], seen[4]}
end
return {'P', RID, seen[2], call('HINCRBY', KEYS[1], 'attempt', 1)}
