-- Tickets: what every queue is made of. A primitive's own include says what a ticket is granted, and what
-- `queued_reply` tells a waiter.
local BATCH, CHUNK, SLACK_MS, SAMPLE = 16, 1000, 10000, 64
local outbox, queued_reply = {}, nil

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

-- The last act of a script; a user without the right to publish must not turn a done release into an error.
local function announce()
  for i = 1, #outbox, 2 do
    redis.pcall('PUBLISH', outbox[i], outbox[i + 1])
  end
end

-- Bars a late copy of the token's acquire. DEL first: the server then lets SET pass when it is out of memory.
local function bury(key, tomb_ms)
  if tomb_ms > 0 then
    redis.pcall('DEL', key)
    redis.pcall('SET', key, '1', 'PXAT', digits(now_ms + tomb_ms))
  end
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
-- `front`: before all others.
local function enqueue(token, ttl_ms, ticket_ttl_ms, block, channel, owner, max_waiters, value, front)
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
  local at = front and 0 or -1
  local next_to, number = call('ZRANGE', QUEUE, at, at, 'WITHSCORES'), now_us
  if front and next_to[2] then
    number = tonumber(next_to[2]) - 1
  elseif next_to[2] then
    number = math.max(number, tonumber(next_to[2]) + 1)
  end
  -- The highest number is the last rank; a member without a ticket that stood there already is not added.
  local added = call('ZADD', QUEUE, digits(number), token) == 1 and not front
  write_ticket(token, expiry, digits(ttl_ms), digits(block), channel, owner)
  outlive(QUEUE, expiry)
  outlive(TICKETS, expiry)
  return queued_reply(added and waiters or call('ZRANK', QUEUE, token), expiry, value)
end

-- Raises the ticket of a renewing waiter. PEXPIREAT first: the server then lets HSET pass when it is out of memory.
-- `queue_expiry_ms` is never below the key's own expiry.
local function raise_ticket(token, expiry_ms, queue_expiry_ms, ttl_ms, channel, ticket)
  local _, _, block, ticket_channel, owner = parse(ticket)
  call('PEXPIREAT', QUEUE, digits(math.max(expiry_ms, queue_expiry_ms)))
  outlive(TICKETS, expiry_ms)
  write_ticket(token, expiry_ms, digits(ttl_ms), block, channel == '' and ticket_channel or channel, owner)
end
