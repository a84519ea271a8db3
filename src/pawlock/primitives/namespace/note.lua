-- Appends one line to the audit log.
-- keys: audit
-- args: id, data, limit, life_ms, rid
-- returns: {'N', rid, now_ms}
-- invariant: a line is written once however often it is sent, no line is ever changed, and at most `limit` are kept.
local id, limit, life_ms = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local AUDIT = KEYS[1]
local recent = call('LRANGE', AUDIT, 0, 99)
--@include _clock
for _, line in ipairs(recent) do
  if string.match(line, '^%d+ (%S+) ') == id then
    return {'N', RID, now_ms}
  end
end
-- PEXPIREAT first: the server then lets LPUSH pass when it is out of memory.
local expiry = string.format('%.0f', now_ms + life_ms)
call('PEXPIREAT', AUDIT, expiry)
call('LPUSH', AUDIT, string.format('%.0f ', now_ms) .. id .. ' ' .. ARGV[2])
call('LTRIM', AUDIT, 0, limit - 1)
call('PEXPIREAT', AUDIT, expiry)
return {'N', RID, now_ms}
