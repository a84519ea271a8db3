-- Releases one token and acquires or queues with the next in one run: a client passes the lock to its own next
-- waiter only if nobody else waits.
-- keys: name, fence, queue, tickets, dead_old, dead_new
-- args: old_token, tomb_ms, token, ttl_ms, ticket_ttl_ms, block, channel, max_waiters, fence_ttl_ms,
--   rid
-- returns: {'H', rid, cur, pttl_ms, now_ms} | {'Q', rid, rank, holder_pttl_ms, own_expiry_ms, now_ms, foreign}
--   | {'X', rid} | {'F', rid, waiters}
-- invariant: the same as leave(old_token) followed by acquire(token, wait) with nothing between them; a late copy
--   finds the new token holding or queued and affects no other token.
local old, tomb_ms, token, ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local ticket_ttl_ms, block, channel, max_waiters = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local DEAD_OLD, DEAD_NEW = KEYS[5], KEYS[6]
--@include _token
if is_guessable(token) or is_guessable(old) then
  return redis.error_reply(GUESSABLE)
end
-- Nobody else is there: what `grant` does, with the fewest calls and before any function is built. PEXPIREAT first: a
-- server without memory then lets SET pass.
if tomb_ms == 0 and call('GET', NAME) == old and call('EXISTS', QUEUE, TICKETS, DEAD_NEW) == 0 then
  local last, version, lives_ms = unpack(call('HMGET', FENCE, 'last', 'v', 'x'))
--@include _clock
  local cur = math.max((last or 0) + 1, now_us)
  last = cur + math.max(block, 1) - 1
  local least_ms = math.max(now_ms, math.ceil(last / 1000))
  if version == '1' and (lives_ms or 0) - math.max(ttl_ms, ARGV[9] * 23 / 24) >= least_ms then
    call('PEXPIREAT', NAME, now_ms + ttl_ms)
    call('SET', NAME, token, 'PXAT', now_ms + ttl_ms)
    call('HSET', FENCE, 'last', last, 'cur', cur)
    return {'H', RID, cur, ttl_ms, now_ms}
  end
end
--@include _fence
--@include _clock
local value = call('GET', NAME)
local head = call('ZRANGE', QUEUE, 0, 0)[1]
local fence, refusal = read_fence()
if refusal then
  return refusal
end
if value == token then
  return {'H', RID, present_fence(fence), call('PTTL', NAME), now_ms}
end
--@include _queue
refusal = bad_channel(channel)
if refusal then
  return refusal
end
local barred = call('EXISTS', DEAD_NEW) == 1
call('HLEN', TICKETS)
local holding = value == old
local free = holding or not value
local found = head and free and plan(head, old, 0) or {drop = {}}
local gone, known = found.drop, false
for _, member in ipairs(gone) do
  known = known or member == old
end
if not known and call('ZSCORE', QUEUE, old) then
  gone[#gone + 1], known = old, true
end
if holding or known then
  -- A place is passed on. Who gives none up takes something new.
  go_on()
end
pump(found, fence, token)
if free then
  value = found.token
end
local reply
if value == token then
  reply = {'H', RID, found.cur, found.expiry - now_ms, now_ms}
elseif not value and not barred then
  reply = {'H', RID, grant(token, now_ms + ttl_ms, block, fence), ttl_ms, now_ms}
elseif barred then
  reply = {'X', RID}
  if holding and not value then
    call('DEL', NAME)
  end
else
  reply = enqueue(token, ttl_ms, ticket_ttl_ms, block, channel, '-', max_waiters, value, gone)
  gone = {}
  keep_fence(fence, 0)
end
remove(gone)
bury(DEAD_OLD, tomb_ms)
announce()
return reply
