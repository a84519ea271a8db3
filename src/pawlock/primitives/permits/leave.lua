-- Releases, withdraws or undoes: afterwards the token neither holds nor queues.
-- keys: permits, fence, queue, tickets, dead, holds
-- args: token, mode (in which it holds or waits), permits (0 for no limit), tomb_ms (0: no tombstone), close_ms (0: its
--   permits are free at once), fence_ttl_ms, rid
-- returns: {'R', rid} | {'W', rid} | {'A', rid, present ('none' or 'held': by others), 1 (if an operator took the permits
--   from it) or 0}
-- invariant: only the token's own member is removed, so a resent request frees nothing twice; the first waiter that
--   fits then is granted its permits; a tombstone outlives the delete, so a late acquire of the token cannot bring it back.
local token, mode, DEAD = ARGV[1], ARGV[2], KEYS[5]
--@include _token
-- A fence that is kept for long outlives the lease by far, and needs no look.
if ARGV[4] == '0' and ARGV[5] == '0' and ARGV[6] - 3600000 >= 0 and call('EXISTS', QUEUE) == 0 then
  local member = mode .. ':' .. token
  if call('ZSCORE', NAME, member) then
    call('HDEL', HOLDS, token)
    call('ZREM', NAME, member)
    return {'R', RID}
  end
end
local permits, tomb_ms, close_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
--@include _fence
--@include _holders
local holding, had = find(token, mode)
--@include _clock
local limit = read_limit(permits)
local waiting, tomb = call('HEXISTS', TICKETS, token) == 1, not holding and call('GET', DEAD)
call('HLEN', HOLDS)
local member = holding and had .. ':' .. token
local closing = holding and close_ms > 0
local state = survey(limit, member)
if closing then
  admit(had, state)
end
local found = plan(state, token, 0)
if waiting then
  found.drop[#found.drop + 1] = token
end
go_on()
local stale = settle(state, found)
if closing then
  call('ZADD', NAME, digits(now_ms + close_ms), had .. ':closed.' .. token)
  outlive(NAME, now_ms + close_ms)
end
if holding then
  state.dead[#state.dead + 1] = member
end
bury_holders(state, found, stale)
remove(found.drop)
if state.count == 0 then
  trim_fence()
end
bury(DEAD, tomb_ms, tomb)
announce()
if holding then
  return {'R', RID}
end
if waiting then
  return {'W', RID}
end
return {'A', RID, state.count > 0 and 'held' or 'none', tomb == 'forced' and 1 or 0}
