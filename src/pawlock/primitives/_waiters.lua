-- The first waiters, `most` of them: what may be shown of each, its ticket's number and expiry.
local waiters = {}
for from = 0, most - 1, CHUNK do
  local page = call('ZRANGE', QUEUE, from, math.min(from + CHUNK, most) - 1, 'WITHSCORES')
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
