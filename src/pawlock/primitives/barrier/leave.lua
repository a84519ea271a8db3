-- Withdraws an arrival that still waits. If the party has passed, bars copies that arrive after that is forgotten.
-- keys: barrier, waiting, passed, tickets, dead
-- args: token, tomb_ms (0: no tombstone), rid
-- returns: {'P', rid, index, round} | {'W', rid} | {'A', rid}
-- invariant: a caller that has passed gets that reply and is not removed; a tombstone prevents a late copy of the
--   arrival from being counted.
local token, tomb_ms = ARGV[1], tonumber(ARGV[2])
--@include _gate
--@include _barrier
if not barrier.passed then
  drop(WAITING, {token})
end
if tomb_ms > 0 then
  -- PEXPIREAT first: a server without memory then lets SET pass.
  redis.pcall('PEXPIREAT', DEAD, digits(now_ms + tomb_ms))
  redis.pcall('SET', DEAD, '1', 'PXAT', digits(now_ms + tomb_ms))
end
if barrier.passed then
  return {'P', RID, barrier.index, barrier.passed}
end
return {barrier.waits > 0 and 'W' or 'A', RID}
