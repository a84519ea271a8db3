-- Hashes: the values by field, and the fields in the order in which they came -------------------------------------------

local function hash(key)
  return kept(text(key), 'hash')
end

local function put_field(found, key, field, value)
  local new = found.values[field] == nil
  if new then
    found.count = found.count + 1
    found.fields[found.count] = field
  end
  found.values[field] = value
  note('h', key, field, value)
  return new and 1 or 0
end

local function new_hash(key)
  data[key] = {kind = 'hash', values = {}, fields = {}, count = 0}
  return data[key]
end

function C.HSET(name, ...)
  local key, words = text(name), texts(...)
  if #words < 2 or #words % 2 == 1 then
    refuse("ERR wrong number of arguments for 'hset' command")
  end
  local found, new = hash(key) or new_hash(key), 0
  for i = 1, #words, 2 do
    new = new + put_field(found, key, words[i], words[i + 1])
  end
  return new
end

function C.HSETNX(name, field, value)
  local key, word, content = text(name), text(field), text(value)
  local found = hash(key) or new_hash(key)
  if found.values[word] then
    return 0
  end
  return put_field(found, key, word, content)
end

function C.HGET(key, field)
  local found = hash(key)
  return found and found.values[text(field)] or false
end

function C.HMGET(key, ...)
  local found, values = hash(key), {}
  for i = 1, select('#', ...) do
    values[i] = found and found.values[text((select(i, ...)))] or false
  end
  return values
end

function C.HEXISTS(key, field)
  local found = hash(key)
  return found and found.values[text(field)] and 1 or 0
end

function C.HDEL(name, ...)
  local key, gone = text(name), 0
  local found = hash(key)
  if not found then
    return 0
  end
  for _, field in ipairs(texts(...)) do
    if found.values[field] then
      found.values[field], gone = nil, gone + 1
      for at, other in ipairs(found.fields) do
        if other == field then
          table.remove(found.fields, at)
          break
        end
      end
      note('H', key, field, false)
    end
  end
  found.count = found.count - gone
  if found.count == 0 then
    drop(key)
  end
  return gone
end

function C.HLEN(key)
  local found = hash(key)
  return found and found.count or 0
end

-- What a look at each field of a hash gives.
local function gather(key, with_value)
  local found, words = hash(key), {}
  for _, field in ipairs(found and found.fields or {}) do
    words[#words + 1] = field
    if with_value then
      words[#words + 1] = found.values[field]
    end
  end
  return words
end

function C.HKEYS(key)
  return gather(key, false)
end

function C.HGETALL(key)
  return gather(key, true)
end

function C.HINCRBY(name, field, by)
  local key, amount = text(name), integer(by)
  local found = hash(key) or new_hash(key)
  local number = integer(found.values[text(field)] or '0') + amount
  put_field(found, key, text(field), digits(number))
  return number
end

function C.HRANDFIELD(key, count, option)
  local many = integer(count)
  if not option or upper(text(option)) ~= 'WITHVALUES' or many < 0 then
    unsupported('HRANDFIELD with other options')
  end
  local words = gather(key, true)
  if many * 2 >= #words then
    return words
  end
  local chosen = {}
  for at in string.gmatch(host('SAMPLE', #words / 2, many), '%d+') do
    chosen[#chosen + 1], chosen[#chosen + 2] = words[at * 2 + 1], words[at * 2 + 2]
  end
  return chosen
end
