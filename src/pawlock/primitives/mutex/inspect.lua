-- Returns the holders and the waiters.
-- keys: name, fence, queue, tickets
-- args: limit (how many waiters to list), rid
-- returns: {'I', rid, holder_public or '', pttl_ms, cur, last, now_ms, foreign, count, qlen,
--   {public, ticket_number, expiry_ms, ...}}
-- invariant: it writes nothing, and shows of a token only what follows its secret part.
local limit = tonumber(ARGV[1])
--@include _fence
--@include _clock
local value = call('GET', NAME)
local fence, refusal = read_fence()
if refusal then
  return refusal
end
--@include _queue
local waiters = {}
for from = 0, limit - 1, CHUNK do
  local page = call('ZRANGE', QUEUE, from, math.min(from + CHUNK, limit) - 1, 'WITHSCORES')
  if #page == 0 then
    break
  end
  local tokens = {}
  for i = 1, #page, 2 do
    tokens[#tokens + 1] = page[i]
  end
  local tickets = call('HMGET', TICKETS, unpack(tokens))
  for i, member in ipairs(tokens) do
    waiters[#waiters + 1] = shown(member)
    waiters[#waiters + 1] = tonumber(page[2 * i])
    waiters[#waiters + 1] = parse(tickets[i])
  end
end
return {
  'I', RID, public(value), call('PTTL', NAME), present_fence(fence), tonumber(fence[1] or '0'), now_ms,
  is_foreign(value), value and 1 or 0, call('ZCARD', QUEUE), waiters
}
