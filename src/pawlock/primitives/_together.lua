-- Raises the tickets of other waiters of one client, once `of_own()` has answered for the one that asks: that raised
-- the lives of the queue's keys first, so that HSET passes when the server is out of memory. Nobody else's place, and
-- nothing else of a ticket, changes; one that is gone, or that counts for longer already, is not touched.
local function with_others(reply, tokens, ticket_ttl_ms)
  if reply[1] ~= 'Q' then
    return reply
  end
  -- Who still waits keeps its ticket: the queue is there.
  --@keeps QUEUE TICKETS
  --@knows QUEUE zset
  --@knows TICKETS hash
  local others, ranks, raised = {}, {}, {}
  for token in string.gmatch(tokens, '%S+') do
    others[#others + 1] = token
  end
  local tickets, at_ms = call('HMGET', TICKETS, unpack(others)), now_ms + ticket_ttl_ms
  local expiry = string.format('%.0f', at_ms)
  for i, token in ipairs(others) do
    local had, rest = string.match(tickets[i] or '', '^(%d+)( .*)$')
    local rank = had and tonumber(had) <= at_ms and call('ZRANK', QUEUE, token)
    ranks[i] = rank or -1
    if rank then
      raised[#raised + 1], raised[#raised + 2] = token, expiry .. rest
    end
  end
  if #raised > 0 then
    call('HSET', TICKETS, unpack(raised))
  end
  reply[#reply + 1] = ranks
  return reply
end
