-- The queue of a mutex: the pump, the replies that need it. Included after the short ways out of a script, so
-- that an uncontended call does not pay for building these functions.
--@include _tickets

-- Who is there instead of the caller.
local function present(value)
  if not value then
    return 'none'
  end
  return is_foreign(value) == 1 and 'foreign' or 'other'
end

-- Reads the queue up to its first live ticket and writes nothing, so that a key of a wrong type stops the script
-- before its first write. `head` is the first in the queue, where the caller knows it: mostly it is live, and
-- no other ticket is read. The ticket of `own` counts as one that expires at `own_expiry_ms`.
local function plan(head, own, own_expiry_ms)
  local found, from = {drop = {}}, 0
  call('ZCARD', QUEUE)
  call('HLEN', TICKETS)
  local members = head and {head} or call('ZRANGE', QUEUE, 0, 0)
  while #members > 0 do
    local tickets = call('HMGET', TICKETS, unpack(members))
    for i, member in ipairs(members) do
      local expiry, _, block, channel = parse(tickets[i])
      if member == own and own_expiry_ms and expiry > 0 then
        expiry = own_expiry_ms
      end
      found.drop[#found.drop + 1] = member
      if expiry > now_ms then
        found.token, found.expiry, found.block, found.channel = member, expiry, tonumber(block), channel
        return found
      end
    end
    from = from + #members
    members = call('ZRANGE', QUEUE, from, from + BATCH - 1)
  end
  return found
end

-- Carries out a plan while the name is free, or its holder goes: gives the name to the first live ticket. Whoever calls
-- it takes `found.drop` out of the queue afterwards. Its first write is SET, which a server without memory refuses.
-- A hand-off changes the role of a lease, never its expiry: the holder's expiry is the ticket's.
local function pump(found, own)
  if not found.token then
    return
  end
  found.cur = grant(found.token, found.expiry, found.block)
  if found.token ~= own and found.channel ~= '-' then
    local words = {found.token, digits(found.cur), digits(found.expiry), digits(now_ms)}
    outbox = {found.channel, table.concat(words, ' ')}
  end
end

function queued_reply(rank, expiry_ms, value)
  return {'Q', RID, rank, call('PTTL', NAME), expiry_ms, now_ms, is_foreign(value)}
end
