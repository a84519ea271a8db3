-- Returns the holders and the waiters.
-- keys: permits, fence, queue, tickets, holds
-- args: permits (0 for no limit), most (how many holders and waiters to list), rid
-- returns: {'I', rid, holder_public or '', left_ms (of the longest; -2: no holder), cur, last, now_ms, 0, count, qlen,
--   {public, ticket_number, expiry_ms, ...}, limit, used, {mode, public, expiry_ms, ...}, {fence of each holder, ...}}
-- invariant: it writes nothing, and shows of a token only what follows its secret part.
local permits, most = tonumber(ARGV[1]), tonumber(ARGV[2])
--@include _fence
--@include _holders
--@include _clock
local limit = read_limit(permits)
local state = survey(limit)
local holders, fences = {}, {}
local live = call('ZRANGEBYSCORE', NAME, digits(now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, math.max(1, most))
for i = 1, #live, 2 do
  holders[#holders + 1] = string.match(live[i], '^%w+')
  holders[#holders + 1] = shown(live[i])
  holders[#holders + 1] = tonumber(live[i + 1])
  fences[#fences + 1] = tonumber(call('HGET', HOLDS, string.match(live[i], '^%w+:(.*)$')) or '0')
end
local longest = call('ZRANGE', NAME, -1, -1, 'WITHSCORES')[2]
--@include _waiters
return {
  'I', RID, holders[2] or '', state.count > 0 and tonumber(longest) - now_ms or -2, present_fence(),
  tonumber(fence[1] or '0'), now_ms, 0, state.count, call('ZCARD', QUEUE), waiters, limit, state.weight, holders, fences
}
