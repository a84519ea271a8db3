-- Returns whether the latch is open, and registers the caller to be woken when it opens.
-- keys: latch, waiters, seen
-- args: token, round (0: not known yet, only ask), count, ttl_ms, ticket_ttl_ms, channel, former (the channel that it
--   was registered with before, or ''), max_waiters, rid
-- returns: {'O', rid, round} | {'N', rid, left, round} | {'W', rid, left, round, expiry_ms} | {'L', rid}
--   | {'F', rid, waiters} | {'C', rid, count}
-- invariant: a waiter of round r gets 'O' exactly if round r or a later one was opened, however late it asks; if the
--   server lost the latch, a new one is never mistaken for it.
local token, round, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ttl_ms, ticket_ttl_ms, channel, former = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
local max_waiters = tonumber(ARGV[8])
--@include _gate
--@include _latch
if round == 0 then
  if latch.there and latch.count ~= count then
    return {'C', RID, latch.count}
  end
  keep(latch, count, ttl_ms)
  if latch.opened >= latch.round then
    return {'O', RID, latch.round}
  end
  return {'N', RID, latch.left, latch.round}
end
if not latch.there or latch.born > round or latch.round < round then
  return {'L', RID}
end
if latch.opened >= round then
  return {'O', RID, latch.opened}
end
-- Who waits already goes on waiting on a server without memory; who comes anew is refused.
local waits = noted_until(WAITERS, token, channel) > 0 or noted_until(WAITERS, token, former) > 0
if waits then
  keep(latch, count, ttl_ms)
end
local expiry_ms = now_ms + ticket_ttl_ms
if not note(WAITERS, token, channel, former, expiry_ms, max_waiters) then
  return {'F', RID, call('ZCARD', WAITERS)}
end
if not waits then
  keep(latch, count, ttl_ms)
end
return {'W', RID, latch.left, latch.round, expiry_ms}
