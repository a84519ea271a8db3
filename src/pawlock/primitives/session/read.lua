-- Reads the records of sessions.
-- keys: record (of each session)
-- args: rid
-- returns: {'S', rid, now_ms, {'written_ms number data' or '', ...}} in the order of the keys
-- invariant: it writes nothing.
--@include _clock
local records = {}
for i = 1, #KEYS do
  records[i] = call('GET', KEYS[i]) or ''
end
return {'S', RID, now_ms, records}
