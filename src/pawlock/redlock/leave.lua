-- Releases the lock on one node, or undoes a vote.
-- keys: name, dead
-- args: token, tomb_ms, close_ms, rid
-- returns: {'R', rid} | {'A', rid, present}
-- invariant: the name is deleted only while its value is the token, and no late copy of its vote counts afterwards.
local token, tomb_ms, close_ms, DEAD = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), KEYS[2]
--@include _token
local value = call('GET', NAME)
--@include _clock
--@include _foreign
-- PEXPIREAT before SET: it passes on a server that is out of memory, and lets SET pass after it.
if value == token and close_ms > 0 then
  call('PEXPIREAT', NAME, now_ms + close_ms)
  call('SET', NAME, CLOSED, 'PXAT', now_ms + close_ms)
elseif value == token then
  call('DEL', NAME)
end
redis.pcall('PEXPIREAT', DEAD, now_ms + tomb_ms)
redis.pcall('SET', DEAD, '1', 'PXAT', now_ms + tomb_ms)
if value == token then
  return {'R', RID}
end
return {'A', RID, not value and 'none' or is_foreign(value) == 1 and 'foreign' or 'other'}
