-- Reserves the next fences for a holder that nobody waits for, so that its client may go on handing over.
-- keys: name, fence, queue, tickets, holds
-- args: token, block, fence_ttl_ms, rid
-- returns: {'H', rid, first} | {'B', rid}
-- invariant: it reserves only while the name's value is the token and nobody is queued, and touches no lease; fences
--   that a late or second copy reserves are used by nobody.
-- Where anything is out of the common, it says no: the client then goes the usual way.
if call('GET', NAME) ~= ARGV[1] or call('ZCARD', QUEUE) > 0 then
  return {'B', RID}
end
local last, version, lives_ms = unpack(call('HMGET', FENCE, 'last', 'v', 'x'))
--@include _clock
local first = math.max((last or 0) + 1, now_us)
last = first + ARGV[2] - 1
if version ~= '1' or (lives_ms or 0) - ARGV[3] * 23 / 24 < math.max(now_ms, math.ceil(last / 1000)) then
  return {'B', RID}
end
call('HSET', FENCE, 'last', last, 'cur', first)
return {'H', RID, first}
