-- Finishes what is done once: records the result, frees the name and notifies everybody who waits.
-- keys: name, fence, queue, tickets, dead, done
-- args: token, tomb_ms (0: no tombstone), type (of the value: n, b, s or j), value, keep_ms, fence (of the lease),
--   fence_ttl_ms, rid
-- returns: {'R', rid} | {'L', rid, present, 1 (if an operator took the name from it) or 0}
-- invariant: the result is recorded only while the name's value is the token, by the script run that frees the name; a
--   resent request finds its own token in the record, or its tombstone, and gets the same reply, so a stale holder
--   records nothing; afterwards the token neither holds nor queues, and a free name is not left to a live ticket.
local token, tomb_ms, DEAD, DONE = ARGV[1], tonumber(ARGV[2]), KEYS[5], KEYS[6]
--@include _token
--@include _clock
--@include _fence
--@include _queue
local value, finisher, tomb = call('GET', NAME), call('HGET', DONE, 'token'), call('GET', DEAD)
if finisher == token or tomb == 'done' then
  return {'R', RID}
end
if value ~= token then
  -- A failover to a replica that lags turns a grant back into a ticket, and nobody asks with this token again.
  local waiting = call('HEXISTS', TICKETS, token) == 1
  local found = waiting and not value and plan(nil, token, 0) or {drop = {}}
  if waiting then
    found.drop[#found.drop + 1] = token
  end
  go_on()
  pump(found)
  remove(found.drop)
  bury(DEAD, tomb_ms, tomb)
  announce()
  return {'L', RID, present(value), tomb == 'forced' and 1 or 0}
end
call('ZCARD', QUEUE)
local tickets, gone = call('HGETALL', TICKETS), {}
call('HSET', DONE, 'token', token, 'type', ARGV[3], 'value', ARGV[4], 'fence', ARGV[6], 'at', digits(now_ms))
call('PEXPIREAT', DONE, digits(now_ms + ARGV[5]))
for i = 1, #tickets, 2 do
  local _, _, _, channel = parse(tickets[i + 1])
  gone[#gone + 1] = tickets[i]
  if channel and channel ~= '-' then
    -- A hand-off that ended long ago: the waiter asks.
    outbox[#outbox + 1] = channel
    outbox[#outbox + 1] = tickets[i] .. ' 0 0 ' .. digits(now_ms)
  end
end
call('DEL', NAME)
trim_fence()
-- The record may be forgotten, or not be kept for long, before a resent request arrives.
bury(DEAD, tomb_ms, 'done')
remove(gone)
announce()
return {'R', RID}
