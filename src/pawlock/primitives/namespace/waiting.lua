-- Reads what the clients of a process wait for and hold.
-- keys: waits (of all clients of a process)
-- args: life_ms (of a record), rid
-- returns: {'A', rid, now_ms, {client, record, ...}}
-- invariant: it writes nothing; a record that its client has not written anew within its life is left out.
--@include _clock
local found, records = call('HGETALL', KEYS[1]), {}
for i = 1, #found, 2 do
  local written_ms, record = string.match(found[i + 1], '^(%d+) (.*)$')
  if tonumber(written_ms or '0') >= now_ms - ARGV[1] then
    records[#records + 1] = found[i]
    records[#records + 1] = record
  end
end
return {'A', RID, now_ms, records}
