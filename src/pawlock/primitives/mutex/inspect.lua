-- Returns the holders and the waiters.
-- keys: name, fence, queue, tickets, holds
-- args: limit (how many waiters to list), rid
-- returns: {'I', rid, holder_public or '', pttl_ms, cur, last, now_ms, foreign, count, qlen,
--   {public, ticket_number, expiry_ms, ...}} and, for an explicit owner: 0, count, {'o', public, expiry_ms, ...}
-- invariant: it writes nothing, and shows of a token only what follows its secret part.
local limit, MOST_HOLDERS = tonumber(ARGV[1]), 100
--@include _fence
--@include _clock
local value = call('GET', NAME)
local fence, refusal = read_fence()
if refusal then
  return refusal
end
--@include _queue
local count, holders = value and 1 or 0, {}
if value and string.find(value, '^owner=') then
  count = 0
  local holds = call('HGETALL', HOLDS)
  for i = 1, #holds, 2 do
    if tonumber(holds[i + 1]) >= now_ms then
      count = count + 1
      if count <= MOST_HOLDERS then
        holders[#holders + 1] = 'o'
        holders[#holders + 1] = shown(holds[i])
        holders[#holders + 1] = tonumber(holds[i + 1])
      end
    end
  end
end
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
local reply = {
  'I', RID, public(value), call('PTTL', NAME), present_fence(fence), tonumber(fence[1] or '0'), now_ms,
  is_foreign(value), count, call('ZCARD', QUEUE), waiters
}
if count > 0 and #holders > 0 then
  reply[12], reply[13], reply[14] = 0, count, holders
end
return reply
