-- Ends one hold of an owner, or withdraws its ticket; the last live hold hands the lock off.
-- keys: name, fence, queue, tickets, dead, holds
-- args: token (the hold), owner (the name's value), tomb_ms (0: no tombstone), close_ms (0: hand off immediately),
--   fence_ttl_ms, rid
-- returns: {'R', rid, count_left} | {'W', rid} | {'A', rid, present, -1 (whether an operator took it is not known)}
-- invariant: the name is deleted only while its value is the owner, the token is a live hold of it and no other live
--   hold is left; it is never left absent with a live ticket queued.
local token, owner, tomb_ms, close_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local DEAD = KEYS[5]
--@include _token
if is_guessable(token) or not string.find(owner, '^owner=.') then
  return redis.error_reply(GUESSABLE)
end
--@include _clock
--@include _fence
--@include _queue
--@include _holds
local value = call('GET', NAME)
local fence, refusal = read_fence()
if refusal then
  return refusal
end
local holds = read_holds()
local head = call('ZRANGE', QUEUE, 0, 0)[1]
local waiting = has_ticket(token)
local holding = value == owner and holds.live[token] ~= nil
local count_left, longest = 0, 0
if holding then
  for other, expiry in pairs(holds.live) do
    -- A hold that ends in this very millisecond keeps no name: PEXPIREAT would delete it, and nobody be served.
    if other ~= token and expiry > now_ms then
      count_left, longest = count_left + 1, math.max(longest, expiry)
    end
  end
end
local last = holding and count_left == 0
local closing = last and close_ms > 0
local found = head and not closing and (last or not value) and plan(head, token, 0) or {drop = {}}
local gone, known = found.drop, false
for _, member in ipairs(gone) do
  known = known or member == token
end
if waiting and not known then
  gone[#gone + 1] = token
end
go_on()
if holding and not last then
  call('PEXPIREAT', NAME, digits(longest))
  call('PEXPIREAT', HOLDS, digits(longest))
end
if closing then
  call('SET', NAME, CLOSED, 'PXAT', digits(now_ms + close_ms))
end
pump(found, fence)
if last then
  if not closing and not found.token then
    call('DEL', NAME)
  end
  if not found.owned then
    call('DEL', HOLDS)
  end
elseif value == owner then
  -- A hold that is past its expiry goes too: a clock that is set back must not bring it back.
  call('HDEL', HOLDS, token)
end
remove(gone)
if not closing and (last or not value) and not found.token then
  trim_fence(fence)
end
bury(DEAD, tomb_ms)
announce()
if holding then
  return {'R', RID, count_left}
end
if waiting then
  return {'W', RID}
end
return {'A', RID, present(value), -1}
