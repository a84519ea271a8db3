-- Returns what is recorded of a result, without the value.
-- keys: name, done
-- args: rid
-- returns: {'I', rid, type or '', value_bytes, fence, done_at_ms, pttl_ms}
-- invariant: it writes nothing, and the value does not leave the server.
local DONE = KEYS[2]
local record = call('HMGET', DONE, 'type', 'value', 'fence', 'at')
local size, fence, at_ms = #(record[2] or ''), tonumber(record[3] or '0'), tonumber(record[4] or '0')
return {'I', RID, record[1] or '', size, fence, at_ms, call('PTTL', DONE)}
