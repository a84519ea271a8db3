-- Acquires permits, or queues for them.
-- keys: permits, fence, queue, tickets, dead, holds
-- args: token, mode (a weight or x), permits (0 for no limit), ttl_ms, ticket_ttl_ms, wait (0 try, 1 wait), channel,
--   max_waiters, fence_ttl_ms, rid
-- returns: {'H', rid, fence, left_ms, now_ms, mode} | {'Q', rid, rank, first_end_ms, own_expiry_ms, now_ms, 0}
--   | {'B', rid, first_end_ms, 0, holder_public} | {'X', rid} | {'F', rid, waiters}
--   | {'N', rid, why, limit, declared}
-- invariant: nothing is granted beside a writer, over the limit, or ahead of an earlier live ticket; a late copy finds
--   its token holding (in the mode that it has by now), queued or dead.
local token, mode, permits, ttl_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local DEAD = KEYS[5]
--@include _token
-- Nothing is there: what `settle` does, with the fewest calls and before any function is built.
if call('EXISTS', NAME, QUEUE, DEAD, HOLDS) == 0 then
  local kept = call('HMGET', FENCE, 'last', 'v', 'x', 'limit', 'declared')
  local agreed = permits == '0' or kept[4] == permits or (kept[4] and kept[5] == permits)
  if kept[2] == '1' and agreed and (permits == '0' or tonumber(mode) <= tonumber(kept[4])) then
--@include _clock
    local cur = math.max((kept[1] or 0) + 1, now_us)
    local fence_ttl_ms = math.max(tonumber(ARGV[9]), kept[4] == kept[5] and 0 or 86400000)
    local keep_ms = math.max(ttl_ms, fence_ttl_ms * 23 / 24)
    if (kept[3] or 0) - keep_ms >= math.max(now_ms, math.ceil(cur / 1000)) then
      local fence, expiry = string.format('%.0f', cur), string.format('%.0f', now_ms + ttl_ms)
      --@knows HOLDS hash
      call('ZADD', NAME, expiry, mode .. ':' .. token)
      call('PEXPIREAT', NAME, expiry)
      call('HSET', FENCE, 'last', fence, 'cur', fence)
      call('HSET', HOLDS, token, fence)
      call('PEXPIREAT', HOLDS, expiry)
      return {'H', RID, cur, ttl_ms, now_ms, mode}
    end
  end
end
--@include _fence
--@include _holders
--@include _clock
local expiry, had = find(token, mode)
local mine = expiry and expiry >= now_ms
if not mine and call('EXISTS', DEAD) == 1 then
  return {'X', RID}
end
local kept_fence = tonumber(call('HGET', HOLDS, token) or '0')
if mine then
  return held_reply({fence = kept_fence, expiry = expiry, mode = had})
end
local limit, declared, unknown = read_limit(tonumber(permits))
if limit ~= tonumber(permits) and declared ~= tonumber(permits) then
  return {'N', RID, 'limit', limit, declared}
end
local state = survey(limit)
if hopeless(mode, state) then
  return {'N', RID, 'weight', limit, declared}
end
local at_once = {token = token, mode = mode, expiry = now_ms + ttl_ms}
local found = plan(state, token)
call('HLEN', TICKETS)
if not found.mine and not found.blocked and fits(mode, state) then
  admit(mode, state)
  found.grants[#found.grants + 1], found.mine = at_once, at_once
  found.drop[#found.drop + 1] = token
end
if unknown then
  keep_limit(limit, declared, now_ms + ttl_ms)
end
local stale = settle(state, found, token)
local reply
if found.mine then
  reply = held_reply(found.mine)
  remove(found.drop)
elseif ARGV[6] == '1' then
  reply = enqueue(token, ttl_ms, tonumber(ARGV[5]), 1, ARGV[7], mode, tonumber(ARGV[8]), nil, found.drop)
  keep_fence(0)
else
  local ends, holder = first_end()
  reply = {'B', RID, ends and math.max(0, ends - now_ms) or -2, 0, holder or ''}
  remove(found.drop)
end
bury_holders(state, found, stale)
announce()
return reply
