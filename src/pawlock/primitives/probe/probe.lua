-- Returns what a client must know about a server before it relies on it.
-- keys: name (any; nothing is read from it)
-- args: rid
-- returns: {'P', rid, info, now_us}
-- invariant: it writes nothing, and if the server does not allow INFO, the text is empty.
local told = {}
for _, section in ipairs({'server', 'replication', 'memory', 'persistence'}) do
  local info = redis.pcall('INFO', section)
  told[#told + 1] = type(info) == 'string' and info or ''
end
--@include _clock
return {'P', RID, table.concat(told, '\r\n'), now_us}
