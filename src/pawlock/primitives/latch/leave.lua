-- Ends a wait.
-- keys: latch, waiters
-- args: token, round, channel (that it was registered with), rid
-- returns: {'O', rid} | {'A', rid}
-- invariant: the caller is no longer registered, and a round that was opened in the meantime is reported.
local token, round, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local LATCH, WAITERS = KEYS[1], KEYS[2]
local opened, born = unpack(call('HMGET', LATCH, 'opened', 'born'))
call('ZREM', WAITERS, token .. ' ' .. channel)
if opened and tonumber(born) <= round and tonumber(opened) >= round then
  return {'O', RID}
end
return {'A', RID}
