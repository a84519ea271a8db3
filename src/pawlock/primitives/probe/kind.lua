-- Returns what kind of value a key has that no lock of pawlock can be.
-- keys: name
-- args: rid
-- returns: {'K', rid, kind ('none', 'string', 'hash', 'zset', 'list' or 'other'), {field, ...}}
-- invariant: it writes nothing, and lists the fields of a hash only if there are few.
local MOST_FIELDS = 8
local kind, fields = 'other', {}
if call('EXISTS', NAME) == 0 then
  kind = 'none'
else
  local count = redis.pcall('HLEN', NAME)
  if type(count) == 'number' then
    kind = 'hash'
    if count <= MOST_FIELDS then
      fields = call('HKEYS', NAME)
    end
  elseif type(redis.pcall('ZCARD', NAME)) == 'number' then
    kind = 'zset'
  elseif type(redis.pcall('GET', NAME)) == 'string' then
    kind = 'string'
  elseif not redis.pcall('LRANGE', NAME, 0, 0).err then
    kind = 'list'
  end
end
return {'K', RID, kind, fields}
