-- Returns the holders and the waiters.
-- keys: name, fence, queue, tickets
-- args: most (how many waiters to list), rid
-- returns: {'I', rid, holder_public or '', pttl_ms, cur, last, now_ms, foreign, count, qlen,
--   {public, ticket_number, expiry_ms, ...}}
-- invariant: it writes nothing, and shows of a token only what follows its secret part.
local most = tonumber(ARGV[1])
--@include _fence
--@include _clock
local value = call('GET', NAME)
--@include _queue
--@include _waiters
return {
  'I', RID, public(value), call('PTTL', NAME), present_fence(), tonumber(fence[1] or '0'), now_ms,
  is_foreign(value), value and 1 or 0, call('ZCARD', QUEUE), waiters
}
