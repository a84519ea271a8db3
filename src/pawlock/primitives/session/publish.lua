-- Writes the record of one session, and maintains the two indexes of live sessions.
-- keys: record, sessions, order, taken
-- args: id, number, ttl_ms, data, rid
-- returns: {'P', rid, now_ms, {tag of a recently force-released grant, ...}}
-- invariant: a late copy never replaces a newer record; a record that is no longer written disappears when it expires,
--   its index entries with the next writer's sweep, and both indexes outlive the longest record.
local id, number, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local RECORD, SESSIONS, ORDER = KEYS[1], KEYS[2], KEYS[3]
local before = call('GET', RECORD)
local left, order_left = call('PTTL', SESSIONS), call('PTTL', ORDER)
--@include _clock
call('ZCARD', ORDER)
local taken = call('ZRANGEBYSCORE', KEYS[4], string.format('%.0f', now_ms), '+inf')
local dead = call('ZRANGEBYSCORE', SESSIONS, '-inf', string.format('%.0f', now_ms - 1), 'LIMIT', 0, 1000)
if before and tonumber(string.match(before, '^%d+ (%d+) ') or '0') >= number then
  return {'P', RID, now_ms, taken}
end
local expiry = string.format('%.0f', now_ms + ttl_ms)
call('SET', RECORD, string.format('%.0f %.0f ', now_ms, number) .. ARGV[4], 'PXAT', expiry)
call('ZADD', SESSIONS, expiry, id)
call('ZADD', ORDER, 0, id)
if left < ttl_ms then
  call('PEXPIREAT', SESSIONS, expiry)
end
if order_left < ttl_ms then
  call('PEXPIREAT', ORDER, expiry)
end
-- Last: a key that loses its last member is gone. This session may be one whose time was over.
for _, other in ipairs(dead) do
  if other ~= id then
    call('ZREM', SESSIONS, other)
    call('ZREM', ORDER, other)
  end
end
return {'P', RID, now_ms, taken}
