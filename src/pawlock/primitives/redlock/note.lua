-- Writes the fence of a reader's or writer's grant back to a node that voted for it.
-- keys: permits, fence, holds
-- args: token, mode (in which it holds), fence, fence_ttl_ms, rid
-- returns: {'H', rid, fence, left_ms, now_us} | {'U', rid, present, now_us}
-- invariant: it writes, and counts, only where the token holds, and only raises fences: so two grants that both count,
--   one of them a writer's, share a node that knows the fence of the first when it issues that of the second.
local token, mode, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])
--@include _token
if is_guessable(token) then
  return redis.error_reply(GUESSABLE)
end
--@include _fence
--@include _clock
local kept = tonumber(call('HGET', HOLDS, token) or '0')
local expiry = tonumber(call('ZSCORE', NAME, mode .. ':' .. token) or '0')
local fence, refusal = read_fence()
if refusal then
  return refusal
end
if expiry < now_ms then
  return {'U', RID, 'none', now_us}
end
if tonumber(fence[1] or '0') < wanted then
  local promised, _, until_ms = term(fence, wanted, expiry)
  call('HSET', FENCE, 'last', digits(wanted), 'cur', digits(wanted), 'v', WIRE, 'x', digits(promised))
  if until_ms then
    prolong(fence, until_ms)
  end
end
if kept < wanted then
  call('HSET', HOLDS, token, digits(wanted))
  if call('PTTL', HOLDS) < expiry - now_ms then
    call('PEXPIREAT', HOLDS, digits(expiry + 1000))
  end
end
return {'H', RID, math.max(kept, wanted), expiry - now_ms, now_us}
