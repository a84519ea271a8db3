-- Renews a lease, waiting or holding; also confirms a grant that arrived as a message.
-- keys: name, fence, queue, tickets
-- args: token, ttl_ms, ticket_ttl_ms, channel ('' keeps the current one), fence_ttl_ms,
--   rid
-- returns: {'H', rid, cur, pttl_ms, now_ms} | {'Q', rid, rank, holder_pttl_ms, own_expiry_ms, now_ms, foreign}
--   | {'U', rid, present}
-- invariant: an expiry is only ever raised and a token that neither holds nor queues is never created again, so a
--   late copy shortens no lease and revives no token.
local token, ttl_ms, ticket_ttl_ms, channel = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
--@include _token
--@include _fence
local value = call('GET', NAME)
if value == token then
  local left = call('PTTL', NAME)
--@include _clock
  if left < ttl_ms then
    call('PEXPIREAT', NAME, digits(now_ms + ttl_ms))
    left = ttl_ms
  end
  keep_fence(now_ms + left)
  return {'H', RID, present_fence(), left, now_ms}
end
local ticket, rank, queue_left = call('HGET', TICKETS, token), call('ZRANK', QUEUE, token), call('PTTL', QUEUE)
--@include _clock
--@include _queue
local mine = ticket and rank
local expiry = mine and math.max(parse(ticket), now_ms + ticket_ttl_ms)
local found = not value and plan(nil, token, expiry)
if found and found.token == token then
  found.expiry = math.max(expiry, now_ms + ttl_ms)
  go_on()
  pump(found, token)
  remove(found.drop)
  return {'H', RID, found.cur, found.expiry - now_ms, now_ms}
end
local gone = found and found.drop or {}
if mine then
  -- The token's own ticket stays: neither key loses its last member.
  --@keeps QUEUE TICKETS
  raise_ticket(token, expiry, now_ms + queue_left, ttl_ms, channel, ticket)
  keep_fence(0)
else
  go_on()
end
if found then
  pump(found, token)
end
remove(gone)
local reply
if mine then
  -- Those that go were before it.
  reply = queued_reply(rank - #gone, expiry, found and found.token or value)
else
  reply = {'U', RID, present(value)}
end
announce()
return reply
