-- Renews a lease on one node; writes the fence of a grant back to a node that voted for it.
-- keys: name, fence
-- args: token, cur (the fence to be written; 0: none), ttl_ms, block, fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_us} | {'U', rid, present, now_us}
-- invariant: it writes, and counts, only where the token holds the name, and only raises expiry and fence: so two grants
--   that both count share a node that knows the fence of the first when it issues that of the second.
local token, wanted, ttl_ms, block = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
--@include _token
local left_ms, value = call('PTTL', NAME), call('GET', NAME)
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
if present_fence() < wanted then
  local last = math.max(tonumber(fence[1] or '0'), wanted + math.max(block, 1) - 1)
  local promised, _, until_ms = term(last, now_ms + left_ms)
  -- As in `keep_fence`: a server without memory then lets HSET pass.
  call('HDEL', FENCE, '')
  call('HSET', FENCE, 'last', digits(last), 'cur', digits(wanted), 'v', WIRE, 'x', digits(promised))
  if until_ms then
    prolong(until_ms)
  end
else
  keep_fence(now_ms + left_ms)
end
return {'H', RID, wanted, left_ms, now_us}
