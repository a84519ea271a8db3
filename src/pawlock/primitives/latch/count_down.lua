-- Counts down; at 0 all waiters are released.
-- keys: latch, waiters, seen
-- args: token, part ('' none), n, count, ttl_ms, remember_ms, rid
-- returns: {'D', rid, left} | {'C', rid, count}
-- invariant: a request or part that was seen before changes nothing; within a round the count only falls, and a
--   round that was opened stays open for all who waited in it.
local token, part, n, count = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local ttl_ms, remember_ms = tonumber(ARGV[5]), tonumber(ARGV[6])
--@include _gate
--@include _latch
if is_seen(token, part) then
  return {'D', RID, latch.left}
end
if latch.there and latch.count ~= count then
  return {'C', RID, latch.count}
end
keep(latch, count, ttl_ms)
latch.left = math.max(0, latch.left - n)
local opens = latch.left == 0 and latch.opened < latch.round
local waiters = opens and call('ZRANGE', WAITERS, 0, -1) or {}
if opens then
  latch.opened = latch.round
end
call('HSET', LATCH, 'left', digits(latch.left), 'opened', digits(latch.opened))
remember(latch, token, part, remember_ms)
if opens then
  call('DEL', WAITERS)
end
wake(waiters, latch.round, now_ms)
return {'D', RID, latch.left}
