-- Releases, withdraws or undoes: afterwards the token neither holds nor queues.
-- keys: name, fence, queue, tickets, dead, holds
-- args: token, tomb_ms (0: no tombstone), close_ms (0: pass the name on at once), rid
-- returns: {'R', rid} | {'W', rid} | {'A', rid, present}
-- invariant: the name is deleted only while its value is the token, and it is never left absent with a live ticket
--   queued; a tombstone outlives the delete, so a late acquire of the token cannot bring it back.
local token, DEAD = ARGV[1], KEYS[5]
local value = call('GET', NAME)
local holding = value == token
local head = call('ZRANGE', QUEUE, 0, 0)[1]
if holding and not head and ARGV[2] == '0' and ARGV[3] == '0' then
  call('DEL', NAME)
  return {'R', RID}
end
read_clock()
local tomb_ms, close_ms = tonumber(ARGV[2]), tonumber(ARGV[3])
--@include _fence
--@include _queue
local fence, refusal = read_fence()
if refusal and head then
  return refusal
end
local waiting = has_ticket(token)
local closing = holding and close_ms > 0
local found = head and not closing and (holding or not value) and plan(head, token, 0)
if holding then
  call('DEL', NAME)
end
if closing then
  call('SET', NAME, CLOSED, 'PXAT', digits(now_ms + close_ms))
end
if waiting then
  remove({token})
end
if found then
  pump(found, fence)
end
bury(DEAD, tomb_ms)
announce()
if holding then
  return {'R', RID}
end
if waiting then
  return {'W', RID}
end
return {'A', RID, present(value)}
