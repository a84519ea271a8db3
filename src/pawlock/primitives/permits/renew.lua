-- Renews a lease, waiting or holding. Also confirms a grant that arrived as a message, and downgrades: a writer that
-- asks as a reader is a reader from then on.
-- keys: permits, fence, queue, tickets, holds
-- args: token, mode (in which it holds or waits), permits (0 for no limit), ttl_ms, ticket_ttl_ms, channel ('' keeps the
--   current one), fence_ttl_ms, rid
-- returns: {'H', rid, fence, left_ms, now_ms, mode} | {'Q', rid, rank, first_end_ms, own_expiry_ms, now_ms, 0}
--   | {'U', rid, present}
-- invariant: an expiry is only ever raised, a token that neither holds nor queues is never created again, and a reader
--   never becomes a writer, so a late copy shortens no lease, revives no token and undoes no downgrade.
local token, mode, permits, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local ticket_ttl_ms, channel = tonumber(ARGV[5]), ARGV[6]
--@include _token
--@include _fence
--@include _holders
local expiry, had = find(token, mode)
local left, queue_left = call('PTTL', NAME), call('PTTL', QUEUE)
--@include _clock
local kept_fence = tonumber(call('HGET', HOLDS, token) or '0')
local held = expiry and expiry >= now_ms and {fence = kept_fence, mode = had}
if held then
  held.expiry = math.max(expiry, now_ms + ttl_ms)
  local waiters = call('ZCARD', QUEUE)
  call('HLEN', TICKETS)
  -- First: the server then lets ZADD pass when it is out of memory.
  local lives = digits(math.max(held.expiry, now_ms + left))
  call('PEXPIREAT', NAME, lives)
  if had == 'x' and mode == '1' then
    held.mode = mode
    call('ZADD', NAME, digits(held.expiry), '1:' .. token)
    call('ZREM', NAME, 'x:' .. token)
  else
    call('ZADD', NAME, digits(held.expiry), had .. ':' .. token)
  end
  outlive(HOLDS, held.expiry)
  keep_fence(held.expiry)
  if waiters == 0 then
    return held_reply(held)
  end
end
local ticket, rank = call('HGET', TICKETS, token), call('ZRANK', QUEUE, token)
local mine = not held and ticket and rank
local own_expiry = mine and math.max(parse(ticket), now_ms + ticket_ttl_ms)
local state = survey(read_limit(permits))
local found = plan(state, mine and token, own_expiry)
if found.mine then
  found.mine.expiry = math.max(own_expiry, now_ms + ttl_ms)
  held = found.mine
end
for _, one in ipairs(found.refused) do
  mine = mine and one.token ~= token
end
if mine and not held then
  raise_ticket(token, own_expiry, now_ms + queue_left, ttl_ms, channel, ticket)
  keep_fence(0)
else
  go_on()
end
local stale = settle(state, found, token)
local reply
if held then
  reply = held_reply(held)
elseif mine then
  -- Those that go were before it.
  reply = queued_reply(rank - #found.drop, own_expiry)
else
  reply = {'U', RID, 'none'}
end
bury_holders(state, found, stale)
remove(found.drop)
announce()
return reply
