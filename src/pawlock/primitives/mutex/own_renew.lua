-- Renews a hold or its ticket; a ticket whose owner holds the lock by now becomes a hold.
-- keys: name, fence, queue, tickets, holds
-- args: token (the hold), owner (the name's value), ttl_ms, ticket_ttl_ms, channel ('' keeps the current one),
--   fence_ttl_ms, rid
-- returns: {'H', rid, cur, hold_pttl_ms, now_ms, count}
--   | {'Q', rid, rank, holder_pttl_ms, own_expiry_ms, now_ms, foreign} | {'U', rid, present}
-- invariant: expiries of holds, tickets and the name only rise, and a token without a live hold or a ticket is
--   never created again.
local token, owner, ttl_ms, ticket_ttl_ms, channel = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
--@include _token
if is_guessable(token) or not string.find(owner, '^owner=.') then
  return redis.error_reply(GUESSABLE)
end
local value, name_left = call('GET', NAME), call('PTTL', NAME)
local ticket, rank, queue_left = call('HGET', TICKETS, token), call('ZRANK', QUEUE, token), call('PTTL', QUEUE)
--@include _clock
--@include _fence
--@include _queue
--@include _holds
local fence, refusal = read_fence()
if refusal then
  return refusal
end
local holds = read_holds()
local mine = ticket and rank
local ticket_expiry = mine and math.max(parse(ticket), now_ms + ticket_ttl_ms)
local found = not value and plan(nil, token, ticket_expiry)
local cur, reply = present_fence(fence), nil
if found and found.token == token then
  found.expiry = math.max(ticket_expiry, now_ms + ttl_ms)
end
local gone = found and found.drop or {}
go_on()
if found and mine and found.value ~= owner then
  raise_ticket(token, ticket_expiry, now_ms + queue_left, ttl_ms, channel, ticket)
end
if found then
  pump(found, fence, token)
  if found.token == token then
    remove(gone)
    return held_reply(found.cur, found.expiry, 1)
  end
  if found.value == owner then
    cur, name_left, holds = found.cur, found.expiry - now_ms, read_holds()
  end
end
local holder = value or found.value
if holder == owner and (holds.live[token] or mine) then
  local had = holds.live[token] or ticket_expiry
  put_hold(token, math.max(had, now_ms + ttl_ms), holds, now_ms + name_left)
  keep_fence(fence, holds.longest)
  if ticket then
    gone[#gone + 1] = token
  end
  remove(gone)
  reply = held_reply(cur > 0 and cur or shared_fence(fence, holds.longest), holds.live[token], holds.count)
elseif mine then
  if not found then
    raise_ticket(token, ticket_expiry, now_ms + queue_left, ttl_ms, channel, ticket)
  end
  remove(gone)
  -- Those that go were before it.
  reply = queued_reply(rank - #gone, ticket_expiry, holder)
else
  remove(gone)
  reply = {'U', RID, present(value)}
end
announce()
return reply
