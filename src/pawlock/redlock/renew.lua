-- Renews a lease on one node.
-- keys: name, fence
-- args: token, ttl_ms, fence_ttl_ms, rid
-- returns: {'H', rid, 0, pttl_ms, now_us} | {'U', rid, present, now_us}
-- invariant: an expiry is only ever raised, and a name that is gone or held by another token is never acquired.
local token, ttl_ms = ARGV[1], tonumber(ARGV[2])
--@include _token
local left_ms = call('PTTL', NAME)
local value = call('GET', NAME)
--@include _fence
--@include _clock
if value ~= token then
--@include _foreign
  return {'U', RID, not value and 'none' or is_foreign(value) == 1 and 'foreign' or 'other', now_us}
end
if left_ms < ttl_ms then
  -- PEXPIREAT first and alone: it passes on a server that is out of memory.
  call('PEXPIREAT', NAME, digits(now_ms + ttl_ms))
  left_ms = ttl_ms
end
keep_fence(now_ms + left_ms)
return {'H', RID, 0, left_ms, now_us}
