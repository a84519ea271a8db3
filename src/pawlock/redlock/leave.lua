-- Releases the lock on one node, or undoes a vote.
-- keys: name, dead
-- args: token, tomb_ms, close_ms, rid
-- returns: {'R', rid} | {'A', rid, present}
-- invariant: the name is deleted only while its value is the token, and once a tombstone is set no late copy of its
--   vote counts.
local token, tomb_ms, close_ms, DEAD = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), KEYS[2]
--@include _token
local value = call('GET', NAME)
if tomb_ms > 0 or close_ms > 0 then
--@include _clock
end
-- PEXPIREAT before SET: it passes on a server that is out of memory, and lets SET pass after it.
if value == token and close_ms > 0 then
  local closed_until = string.format('%.0f', now_ms + close_ms)
  call('PEXPIREAT', NAME, closed_until)
  call('SET', NAME, 'closed@min_hold', 'PXAT', closed_until)
elseif value == token then
  call('DEL', NAME)
end
if tomb_ms > 0 then
  local dead_until = string.format('%.0f', now_ms + tomb_ms)
  redis.pcall('PEXPIREAT', DEAD, dead_until)
  redis.pcall('SET', DEAD, '1', 'PXAT', dead_until)
end
if value == token then
  return {'R', RID}
end
--@include _foreign
return {'A', RID, not value and 'none' or is_foreign(value) == 1 and 'foreign' or 'other'}
