-- Writes the fence of a grant back to a node that voted for it.
-- keys: name, fence
-- args: token, cur, block, fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_us} | {'U', rid, present, now_us}
-- invariant: it writes, and counts, only where the token holds the name, and only raises the fence: so two grants
--   that both count share a node that knows the fence of the first when it issues that of the second.
local token, wanted, block = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
--@include _token
local left_ms = call('PTTL', NAME)
local value = call('GET', NAME)
--@include _fence
--@include _clock
if value ~= token then
  return {'U', RID, value and 'other' or 'none', now_us}
end
if present_fence() < wanted then
  local last = math.max(tonumber(fence[1] or '0'), wanted + math.max(block, 1) - 1)
  local promised, _, until_ms = term(last, now_ms + left_ms)
  call('HSET', FENCE, 'last', digits(last), 'cur', digits(wanted), 'v', WIRE, 'x', digits(promised))
  if until_ms then
    prolong(until_ms)
  end
end
return {'H', RID, math.max(present_fence(), wanted), left_ms, now_us}
