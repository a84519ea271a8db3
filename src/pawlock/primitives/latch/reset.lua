-- Begins a new round with the full count. Waiters keep waiting.
-- keys: latch, waiters, seen
-- args: token, count, ttl_ms, remember_ms, rid
-- returns: {'R', rid, left}
-- invariant: a request that was seen before changes nothing, so no late copy undoes what was counted since; a
--   reset opens no round and closes none that was opened.
local token, count, ttl_ms, remember_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
--@include _gate
--@include _latch
if is_seen(token, '') then
  return {'R', RID, latch.left}
end
local was_there = latch.there
keep(latch, count, ttl_ms)
if was_there then
  local round = math.max(latch.round + 1, now_us)
  call('HSET', LATCH, 'count', digits(count), 'left', digits(count), 'round', digits(round))
end
remember(latch, token, '', remember_ms)
if was_there then
  call('ZREMRANGEBYSCORE', SEEN, '+inf', '+inf')
end
return {'R', RID, count}
