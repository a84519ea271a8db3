-- The queue: tickets, the pump, the replies that need them. Included after the short ways out of a script, so
-- that an uncontended call does not pay for building these functions.
local BATCH, CHUNK, SLACK_MS, SAMPLE = 16, 1000, 10000, 64
local CLOSED = 'closed@min_hold'
local outbox

local function is_foreign(value)
  return (value and not string.find(value, '@', 1, true)) and 1 or 0
end

-- What may be shown of a value: never the secret part of a token.
local function public(value)
  if not value or is_foreign(value) == 1 then
    return ''
  end
  return string.match(value, '^(owner=.*)@shared$') or string.match(value, '@(.*)$')
end

-- Who is there instead of the caller.
local function present(value)
  if not value then
    return 'none'
  end
  return is_foreign(value) == 1 and 'foreign' or 'other'
end

-- expiry_ms, ttl_ms, block, channel, owner; expiry 0 (dead) for a ticket that is missing.
local function parse(ticket)
  local expiry, ttl, block, channel, owner = string.match(ticket or '', '^(%d+) (%d+) (%d+) (%S+) (.*)$')
  return tonumber(expiry or '0'), ttl, block, channel, owner
end

local function write_ticket(token, expiry_ms, ttl_ms, block, channel, owner)
  call('HSET', TICKETS, token, table.concat({digits(expiry_ms), ttl_ms, block, channel, owner}, ' '))
end

-- A key of the queue lives at least as long as its longest ticket, and is never cut short: the slack is far more
-- than the clock can move between TIME and PTTL.
local function outlive(key, expiry_ms)
  if call('PTTL', key) < expiry_ms - now_ms then
    call('PEXPIREAT', key, digits(expiry_ms + SLACK_MS))
  end
end

local function remove(members)
  for from = 1, #members, CHUNK do
    local to = math.min(from + CHUNK - 1, #members)
    call('ZREM', QUEUE, unpack(members, from, to))
    call('HDEL', TICKETS, unpack(members, from, to))
  end
end

-- Whether a token has a ticket; a queue entry without one is dead and goes with the next pump.
local function has_ticket(token)
  return call('HEXISTS', TICKETS, token) == 1
end

-- Reads the queue up to its first live ticket and writes nothing, so that a key of a wrong type stops the script
-- before its first write. `head` is the first in the queue, where the caller knows it: mostly it is live, and
-- nobody else is looked at. The ticket of `own` counts as one that expires at `own_expiry_ms`.
local function plan(head, own, own_expiry_ms)
  local found, from = {drop = {}}, 0
  local members = head and {head} or call('ZRANGE', QUEUE, 0, 0)
  while #members > 0 do
    local tickets = call('HMGET', TICKETS, unpack(members))
    for i, member in ipairs(members) do
      local expiry, _, block, channel, owner = parse(tickets[i])
      if member == own and own_expiry_ms and expiry > 0 then
        expiry = own_expiry_ms
      end
      found.drop[#found.drop + 1] = member
      if expiry > now_ms then
        found.token, found.expiry, found.block, found.channel = member, expiry, tonumber(block), channel
        found.owned = owner ~= '-'
        found.value = found.owned and owner or member
        if found.owned then
          call('HLEN', HOLDS)
        end
        return found
      end
    end
    from = from + #members
    members = call('ZRANGE', QUEUE, from, from + BATCH - 1)
  end
  return found
end

-- Carries out a plan while the name is free: drops the dead heads and gives the name to the first live ticket.
-- A hand-off changes the role of a lease, never its expiry: the holder's expiry is the ticket's.
local function pump(found, fence, own)
  remove(found.drop)
  if not found.token then
    return
  end
  found.cur = grant(found.value, found.expiry, found.block, fence)
  if found.owned then
    call('DEL', HOLDS)
    call('HSET', HOLDS, found.token, digits(found.expiry))
    call('PEXPIREAT', HOLDS, digits(found.expiry))
  end
  if found.token ~= own and found.channel ~= '-' then
    local words = {found.token, digits(found.cur), digits(found.expiry), digits(now_ms)}
    outbox = {found.channel, table.concat(words, ' ')}
  end
end

-- The last act of a script; a user without the right to publish must not turn a done release into an error.
local function announce()
  if outbox then
    redis.pcall('PUBLISH', outbox[1], outbox[2])
  end
end

-- Bars a late copy of the token's acquire. DEL first: the server then lets SET pass when it is out of memory.
local function bury(key, tomb_ms)
  if tomb_ms > 0 then
    redis.pcall('DEL', key)
    redis.pcall('SET', key, '1', 'PXAT', digits(now_ms + tomb_ms))
  end
end

local function queued_reply(rank, expiry_ms, value)
  return {'Q', RID, rank, call('PTTL', NAME), expiry_ms, now_ms, is_foreign(value)}
end

-- Room for a waiter? Dead tickets behind a live head are found by sampling, so that a full queue stays cheap.
local function waiters_after_sweep(max_waiters)
  local waiters = call('ZCARD', QUEUE)
  if waiters < max_waiters or waiters == 0 then
    return waiters
  end
  local sample, dead = call('HRANDFIELD', TICKETS, SAMPLE, 'WITHVALUES'), {}
  for i = 1, #sample, 2 do
    if parse(sample[i + 1]) <= now_ms then
      dead[#dead + 1] = sample[i]
    end
  end
  remove(dead)
  return call('ZCARD', QUEUE)
end

-- Queues `token`, or raises the expiry of its ticket: of a ticket that stands, a late copy changes nothing else.
local function enqueue(token, ttl_ms, ticket_ttl_ms, block, channel, owner, max_waiters, value)
  local ticket = call('HGET', TICKETS, token)
  local rank = ticket and call('ZRANK', QUEUE, token)
  local expiry = now_ms + ticket_ttl_ms
  if ticket and rank then
    local had, ticket_ttl, ticket_block, ticket_channel, ticket_owner = parse(ticket)
    if expiry > had then
      outlive(QUEUE, expiry)
      outlive(TICKETS, expiry)
      write_ticket(token, expiry, ticket_ttl, ticket_block, ticket_channel, ticket_owner)
    end
    return queued_reply(rank, math.max(expiry, had), value)
  end
  channel = channel == '' and '-' or channel
  if string.find(channel, '%s') then
    return redis.error_reply('PAWLARG a channel must not contain white space')
  end
  local waiters = waiters_after_sweep(max_waiters)
  if waiters >= max_waiters then
    return {'F', RID, waiters}
  end
  local tail, number = call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES'), now_us
  if tail[2] then
    number = math.max(number, tonumber(tail[2]) + 1)
  end
  -- The highest number is the last rank; a member without a ticket that stood there already is not added.
  local added = call('ZADD', QUEUE, digits(number), token)
  write_ticket(token, expiry, digits(ttl_ms), digits(block), channel, owner)
  outlive(QUEUE, expiry)
  outlive(TICKETS, expiry)
  return queued_reply(added == 1 and waiters or call('ZRANK', QUEUE, token), expiry, value)
end

-- Raises the ticket of a renewing waiter. PEXPIREAT first: the server then lets HSET pass when it is out of memory.
-- `queue_expiry_ms` is never below the key's own expiry.
local function raise_ticket(token, expiry_ms, queue_expiry_ms, ttl_ms, channel, ticket)
  local _, _, block, ticket_channel, owner = parse(ticket)
  call('PEXPIREAT', QUEUE, digits(math.max(expiry_ms, queue_expiry_ms)))
  outlive(TICKETS, expiry_ms)
  write_ticket(token, expiry_ms, digits(ttl_ms), block, channel == '' and ticket_channel or channel, owner)
end
