-- Writes what the waiters of one client wait for and hold, and may wake a waiter, which then asks again.
-- keys: waits (of all clients of a process)
-- args: client, record ('' deletes it), life_ms, channel ('' wakes nobody), token, rid
-- returns: {'N', rid, now_ms}
-- invariant: only the client's own record is written, and of others only those that nobody renews are deleted; the key
--   expires with the last record, and the message grants nothing, as its fence is 0.
local WAITS, client, record, life_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local records = call('HGETALL', WAITS)
--@include _clock
if record == '' then
  call('HDEL', WAITS, client)
else
  call('HSET', WAITS, client, string.format('%.0f ', now_ms) .. record)
  call('PEXPIREAT', WAITS, string.format('%.0f', now_ms + life_ms))
  for i = 1, #records, 2 do
    if records[i] ~= client and tonumber(string.match(records[i + 1], '^%d+') or '0') < now_ms - life_ms then
      call('HDEL', WAITS, records[i])
    end
  end
end
if ARGV[4] ~= '' then
  redis.pcall('PUBLISH', ARGV[4], ARGV[5] .. ' 0 1 0')
end
return {'N', RID, now_ms}
