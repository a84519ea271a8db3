-- Takes back one node's part of a name: release, or undo of a vote.
-- keys: name, dead
-- args: token, tomb_ms, close_ms, rid
-- returns: {'R', rid} | {'A', rid, present}
-- invariant: only the token's own name is deleted, and once a tombstone is set no late copy of its vote counts.
local token, tomb_ms, close_ms, DEAD = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), KEYS[2]
--@include _token
if is_guessable(token) then
  return redis.error_reply(GUESSABLE)
end
local value = call('GET', NAME)
if tomb_ms > 0 or close_ms > 0 then
--@include _clock
end
if value == token then
  -- First of all writes: DEL passes on a server that is out of memory, and lets the others pass after it.
  call('DEL', NAME)
  if close_ms > 0 then
    call('SET', NAME, 'closed@min_hold', 'PXAT', string.format('%.0f', now_ms + close_ms))
  end
end
if tomb_ms > 0 then
  redis.pcall('DEL', DEAD)
  redis.pcall('SET', DEAD, '1', 'PXAT', string.format('%.0f', now_ms + tomb_ms))
end
if value == token then
  return {'R', RID}
end
return {'A', RID, not value and 'none' or string.find(value, '@', 1, true) and 'other' or 'foreign'}
