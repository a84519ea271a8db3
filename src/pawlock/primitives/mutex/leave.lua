-- Releases, withdraws or undoes: afterwards the token neither holds nor queues.
-- keys: name, fence, queue, tickets, dead
-- args: token, tomb_ms (0: no tombstone), close_ms (0: hand off immediately), fence_ttl_ms, rid
-- returns: {'R', rid} | {'W', rid} | {'A', rid, present, 1 (if an operator took the name from it) or 0}
-- invariant: the name is deleted only while its value is the token, and it is never left absent with a live ticket
--   queued; a tombstone outlives the delete, so a late acquire of the token cannot bring it back.
local token, DEAD = ARGV[1], KEYS[5]
--@include _token
local value = call('GET', NAME)
local holding = value == token
local head = call('ZRANGE', QUEUE, 0, 0)[1]
local quick = ARGV[2] == '0' and ARGV[3] == '0'
-- A fence that is kept for long outlives the lease by far, and needs no look; else one that the lease did not prolong
-- needs no trim.
if holding and not head and quick and (ARGV[4] - 3600000 >= 0 or call('PTTL', FENCE) <= tonumber(ARGV[4])) then
  call('DEL', NAME)
  return {'R', RID}
end
--@include _clock
-- A holder passes the name to a live ticket: what `plan` and `pump` do, with the fewest calls and before any
-- function is built. ZREM first: the server then lets SET pass when it is out of memory.
if holding and head and head ~= token and quick then
  local ticket = call('HGET', TICKETS, head) or ''
  local expiry, block, channel = string.match(ticket, '^(%d+) %d+ (%d+) (%S+) ')
  local last, version, lives_ms = unpack(call('HMGET', FENCE, 'last', 'v', 'x'))
  if expiry and tonumber(expiry) > now_ms and version == '1' then
    local cur = math.max((last or 0) + 1, now_us)
    last = cur + math.max(block, 1) - 1
    local kept_ms = math.max(now_ms, math.ceil(last / 1000)) + ARGV[4] * 23 / 24
    if math.max(kept_ms, tonumber(expiry)) <= tonumber(lives_ms or '0') then
      local fence = string.format('%.0f', cur)
      call('ZREM', QUEUE, head)
      call('HDEL', TICKETS, head)
      call('SET', NAME, head, 'PXAT', expiry)
      call('HSET', FENCE, 'last', last, 'cur', fence)
      if channel ~= '-' then
        redis.pcall('PUBLISH', channel, table.concat({head, fence, expiry, string.format('%.0f', now_ms)}, ' '))
      end
      return {'R', RID}
    end
  end
end
local tomb_ms, close_ms = tonumber(ARGV[2]), tonumber(ARGV[3])
--@include _fence
--@include _queue
local waiting, tomb = call('HEXISTS', TICKETS, token) == 1, not holding and call('GET', DEAD)
local closing = holding and close_ms > 0
local serves = head and not closing and (holding or not value)
local found = serves and plan(head, token, 0) or {drop = {}}
if waiting then
  found.drop[#found.drop + 1] = token
end
go_on()
if closing then
  call('SET', NAME, CLOSED, 'PXAT', digits(now_ms + close_ms))
end
pump(found)
if holding and not closing and not found.token then
  call('DEL', NAME)
end
remove(found.drop)
if not closing and (holding or not value) and not found.token then
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
return {'A', RID, present(value), tomb == 'forced' and 1 or 0}
