-- Acquires the lock for an owner that several holds share, re-enters it, or queues for it.
-- keys: name, fence, queue, tickets, dead, holds
-- args: token (the hold), owner (the name's value), ttl_ms, ticket_ttl_ms, mode (0 try, 1 wait, 2 noqueue), block,
--   channel, max_waiters, fence_ttl_ms, rid
-- returns: {'H', rid, cur, hold_pttl_ms, now_ms, count}
--   | {'Q', rid, rank, holder_pttl_ms, own_expiry_ms, now_ms, foreign}
--   | {'B', rid, holder_pttl_ms, foreign, holder_public} | {'X', rid} | {'F', rid, waiters}
-- invariant: a hold is added only while the name's value is its owner or the name is free with no live ticket
--   before it, once per token, and the name lives at least as long as every hold.
local token, owner, ttl_ms, ticket_ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mode, block, channel, max_waiters = ARGV[5], tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local DEAD = KEYS[5]
--@include _token
if is_guessable(token) or not string.find(owner, '^owner=.') then
  return redis.error_reply(GUESSABLE)
end
local value, name_left = call('GET', NAME), call('PTTL', NAME)
--@include _clock
--@include _fence
--@include _queue
--@include _holds
local fence, refusal = read_fence()
if refusal then
  return refusal
end
local holds = read_holds()
if value == owner and holds.live[token] then
  return held_reply(shared_fence(fence, holds.longest), holds.live[token], holds.count)
end
if call('EXISTS', DEAD) == 1 then
  return {'X', RID}
end
refusal = bad_channel(channel)
if refusal then
  return refusal
end
local ticket, head = call('HGET', TICKETS, token), call('ZRANGE', QUEUE, 0, 0)[1]
local cur, expiry = present_fence(fence), now_ms + ttl_ms
local gone = {}
if not value then
  local found = mode ~= '2' and plan(head) or {drop = {}}
  gone = found.drop
  if not found.token then
    local first = grant_hold(token, owner, expiry, block, fence, holds)
    remove(gone)
    return held_reply(first, expiry, 1)
  end
  pump(found, fence, token)
  if found.token == token then
    remove(gone)
    return held_reply(found.cur, found.expiry, 1)
  end
  value, cur = found.value, found.cur
  if value == owner then
    name_left, holds = found.expiry - now_ms, read_holds()
  end
end
local reply
if value == owner then
  put_hold(token, math.max(expiry, (parse(ticket))), holds, now_ms + name_left)
  keep_fence(fence, holds.longest)
  if ticket then
    gone[#gone + 1] = token
  end
  remove(gone)
  reply = held_reply(cur > 0 and cur or shared_fence(fence, holds.longest), holds.live[token], holds.count)
elseif mode == '1' then
  reply = enqueue(token, ttl_ms, ticket_ttl_ms, block, channel, owner, max_waiters, value, gone)
  keep_fence(fence, 0)
else
  remove(gone)
  reply = {'B', RID, call('PTTL', NAME), is_foreign(value), public(value)}
end
announce()
return reply
