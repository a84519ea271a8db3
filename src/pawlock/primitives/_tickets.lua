-- Tickets: what every queue is made of. A primitive's own include says what a ticket is granted, and what
-- `queued_reply` tells a waiter.
local BATCH, SAMPLE = 16, 64
local outbox, queued_reply = {}, nil

--@include _foreign
-- What may be shown of a token: never its secret part.
local function shown(token)
  return string.match(token, '@(.*)$') or ''
end

-- What may be shown of a name's value.
local function public(value)
  if not value or is_foreign(value) == 1 then
    return ''
  end
  return shown(value)
end

-- expiry_ms, ttl_ms, block, channel, what is asked for; expiry 0 (dead) for a ticket that is missing.
local function parse(ticket)
  local expiry, ttl, block, channel, asked = string.match(ticket or '', '^(%d+) (%d+) (%d+) (%S+) (.*)$')
  return tonumber(expiry or '0'), ttl, block, channel, asked
end

local function write_ticket(token, expiry_ms, ttl_ms, block, channel, asked)
  call('HSET', TICKETS, token, table.concat({digits(expiry_ms), ttl_ms, block, channel, asked}, ' '))
end

-- Takes members out of the queue: among the last that a script writes, since a key that loses its last member is gone,
-- and in a slot that moves to another node of a cluster it cannot be written anew.
local function remove(members)
  -- They come from both.
  --@knows QUEUE zset
  --@knows TICKETS hash
  for from = 1, #members, CHUNK do
    local to = math.min(from + CHUNK - 1, #members)
    call('ZREM', QUEUE, unpack(members, from, to))
    call('HDEL', TICKETS, unpack(members, from, to))
  end
end

-- The last act of a script; a user without the right to publish must not turn a done release into an error.
local function announce()
  for i = 1, #outbox, 2 do
    redis.pcall('PUBLISH', outbox[i], outbox[i + 1])
  end
end

-- Lets what follows pass on a server without memory, which judges a script by its first write: this one takes nothing
-- away, as no field has no name. Not for a script that gives something new, which such a server is to refuse.
local function go_on()
  call('HDEL', FENCE, '')
end

-- Bars a late copy of the token's acquire.
local function bury(key, tomb_ms, mark)
  if tomb_ms > 0 then
    redis.pcall('HDEL', FENCE, '')
    redis.pcall('SET', key, mark or '1', 'PXAT', digits(now_ms + tomb_ms))
  end
end

-- Dead tickets behind a live head, found by sampling, so that a full queue stays cheap, and how many of them have an
-- entry in the queue. Those in `gone` are not looked for.
local function sampled_dead(gone)
  local sample, dead, entries, known = call('HRANDFIELD', TICKETS, SAMPLE, 'WITHVALUES'), {}, 0, {}
  for _, member in ipairs(gone) do
    known[member] = true
  end
  for i = 1, #sample, 2 do
    if not known[sample[i]] and parse(sample[i + 1]) <= now_ms then
      dead[#dead + 1] = sample[i]
      entries = entries + (call('ZSCORE', QUEUE, sample[i]) and 1 or 0)
    end
  end
  return dead, entries
end

-- Queues `token`, or raises the expiry of its ticket: of a ticket that stands, a late copy changes nothing else.
-- `gone`: queue entries that go; they are taken out once the token is in, so that the keys
-- of the queue never are without a member. Its first write is HSET or ZADD, which a server without memory refuses.
local function enqueue(token, ttl_ms, ticket_ttl_ms, block, channel, asked, max_waiters, value, gone)
  local ticket, others = call('HGET', TICKETS, token), {}
  local rank = ticket and call('ZRANK', QUEUE, token)
  local expiry = now_ms + ticket_ttl_ms
  for _, member in ipairs(gone) do
    if member == token then
      -- Its ticket had run out: it gets a new one, behind the others.
      rank = nil
    else
      others[#others + 1] = member
    end
  end
  if ticket and rank then
    --@knows QUEUE zset
    local had, ticket_ttl, ticket_block, ticket_channel, ticket_asked = parse(ticket)
    if expiry > had then
      write_ticket(token, expiry, ticket_ttl, ticket_block, ticket_channel, ticket_asked)
      outlive(QUEUE, expiry)
      outlive(TICKETS, expiry)
    end
    -- The token's own ticket stays: neither key loses its last member.
    --@keeps QUEUE TICKETS
    remove(others)
    return queued_reply(call('ZRANK', QUEUE, token), math.max(expiry, had), value)
  end
  channel = string.match(channel, '^%S+$') or '-'
  local entries, dead = call('ZCARD', QUEUE), {}
  local waiters = entries - #gone
  if waiters >= max_waiters and waiters > 0 then
    local dead_entries
    dead, dead_entries = sampled_dead(gone)
    waiters = waiters - dead_entries
  end
  if waiters >= max_waiters then
    remove(gone)
    remove(dead)
    return {'F', RID, waiters}
  end
  -- Those that go are the first.
  local before, number = entries > #gone and call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES') or {}, now_us
  if before[2] then
    number = math.max(number, tonumber(before[2]) + 1)
  end
  -- The highest number is the last rank; a member without a ticket that stood there already is not added.
  local added = call('ZADD', QUEUE, digits(number), token) == 1
  write_ticket(token, expiry, digits(ttl_ms), digits(block), channel, asked)
  outlive(QUEUE, expiry)
  outlive(TICKETS, expiry)
  remove(others)
  remove(dead)
  return queued_reply(added and waiters or call('ZRANK', QUEUE, token), expiry, value)
end

-- Raises the ticket of a renewing waiter. PEXPIREAT first: the server then lets HSET pass when it is out of memory.
-- `queue_expiry_ms` is never below the key's own expiry.
local function raise_ticket(token, expiry_ms, queue_expiry_ms, ttl_ms, channel, ticket)
  local _, _, block, ticket_channel, asked = parse(ticket)
  call('PEXPIREAT', QUEUE, digits(math.max(expiry_ms, queue_expiry_ms)))
  outlive(TICKETS, expiry_ms)
  write_ticket(token, expiry_ms, digits(ttl_ms), block, string.match(channel, '^%S+$') or ticket_channel, asked)
end
