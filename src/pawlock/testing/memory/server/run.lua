-- Lists -----------------------------------------------------------------------------------------------------------------

local function put_list(key, items)
  if #items == 0 then
    drop(key)
    return
  end
  data[key] = {kind = 'list', items = items}
  note('l', key, false, false)
  for _, item in ipairs(items) do
    note('a', key, item, false)
  end
end

local function items_of(key)
  local found = kept(text(key), 'list')
  return found and found.items or {}
end

function C.LPUSH(key, ...)
  local items = {}
  for _, item in ipairs(texts(...)) do
    table.insert(items, 1, item)
  end
  for _, item in ipairs(items_of(key)) do
    items[#items + 1] = item
  end
  put_list(text(key), items)
  return #items
end

function C.LINDEX(key, at)
  return items_of(key)[integer(at) + 1] or false
end

function C.LRANGE(key, start, stop)
  return slice(items_of(key), integer(start), integer(stop))
end

function C.LTRIM(key, start, stop)
  put_list(text(key), slice(items_of(key), integer(start), integer(stop)))
  return OK
end

-- Running ---------------------------------------------------------------------------------------------------------------

-- Which commands may write, and which of them a server without memory refuses.
local WRITES = {
  DEL = 'frees', HDEL = 'frees', LTRIM = 'frees', PEXPIREAT = 'frees', ZREM = 'frees', ZREMRANGEBYSCORE = 'frees',
  HINCRBY = 'fills', HSET = 'fills', HSETNX = 'fills', LPUSH = 'fills', SET = 'fills', ZADD = 'fills',
}

-- Commands that have no key, and those whose arguments all are keys; of the others the first one is.
local KEYLESS, ALL_KEYS = {TIME = true, INFO = true, PUBLISH = true, SCAN = true, DBSIZE = true}, {DEL = true, EXISTS = true}

-- The rule of a node of a cluster whose slot is on its way. From where it goes (1), a command may name only keys that are
-- there, also to read them, and also if this very script deleted them: whoever asks for another is sent on. Where it goes
-- to (2), that holds for commands that name several.
local function check_place(name, ...)
  if KEYLESS[name] then
    return
  end
  local count = ALL_KEYS[name] and select('#', ...) or 1
  for i = 1, count do
    local key = text((select(i, ...)))
    local gone = not data[key] or (expires[key] and expires[key] < now_ms)
    if gone and (moving == 1 or count > 1) then
      refuse(NOT_HERE)
    end
  end
end

local function call(name, ...)
  local command = C[name]
  if not command then
    name = upper(name)
    command = C[name] or unsupported('the command ' .. name)
  end
  if moving ~= 0 then
    check_place(name, ...)
  end
  local writes = WRITES[name]
  if writes then
    if replica then
      refuse(READ_ONLY)
    elseif no_memory and not dirty and writes == 'fills' then
      refuse(NO_MEMORY)
    end
    -- The memory limit spares a script from its first write on.
    dirty, changes = true, changes + 1
  end
  return command(...)
end

local function settled(ok, reply)
  if not ok and (failure or type(reply) ~= 'table') then
    error(reply, 0)
  end
  return reply
end

-- Redis' rules for what a script sees: globals are closed.
local redis = {
  call = call,
  pcall = function(...) return settled(pcall(call, ...)) end,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}
local env = {
  redis = redis, math = math, string = string, table = table, tonumber = tonumber, tostring = tostring,
  type = type, ipairs = ipairs, pairs = pairs, unpack = unpack, next = next, select = select, pcall = pcall,
  error = error, KEYS = {}, ARGV = {},
}
setmetatable(env, {
  __index = function(_, name) error('Script attempted to access nonexistent global variable ' .. name, 0) end,
  __newindex = function(_, name) error('Script attempted to set the global variable ' .. name, 0) end,
})

-- What goes back: how many writes there were, how many words were noted, these, and the reply: a letter for its kind
-- (v one value, a an array, s a status, e an error, x what is not known here), then its values. An array of a reply
-- ends at its first nil.
local function answered(ok, reply)
  local head, kind, words = out, 'v', noted
  head[1], head[2] = changes, noted - 2
  out = nil
  if failure then
    kind, reply = 'x', failure
  elseif not ok then
    kind, reply = 'e', type(reply) == 'table' and reply.err or 'ERR ' .. tostring(reply)
  elseif type(reply) == 'table' and (reply.err or reply.ok) then
    kind, reply = reply.err and 'e' or 's', reply.err or reply.ok
  elseif type(reply) == 'table' then
    head[words + 1] = 'a'
    local count = 0
    while reply[count + 1] ~= nil do
      count = count + 1
      head[words + 1 + count] = reply[count]
    end
    return unpack(head, 1, words + 1 + count)
  end
  head[words + 1], head[words + 2] = kind, reply
  return unpack(head, 1, words + 2)
end

local function begin(home, at_us, drift, is_replica, is_full, on_its_way)
  data, expires = home.data, home.expires
  now_us, now_ms, slip_us, drift_us = at_us, floor(at_us / 1000), -drift, drift
  replica, no_memory, moving = is_replica, is_full, on_its_way
  dirty, changes, failure = false, 0, nil
  out, noted = {false, false}, 2
end

local function run(script, numkeys, home, at_us, drift, is_replica, is_full, on_its_way, ...)
  begin(home, at_us, drift, is_replica, is_full, on_its_way)
  local keys, args, words = {}, {}, {...}
  declared = {}
  for i = 1, numkeys do
    keys[i], declared[words[i]] = words[i], true
  end
  for i = numkeys + 1, #words do
    args[i - numkeys] = words[i]
  end
  env.KEYS, env.ARGV = keys, args
  return answered(pcall(script))
end

-- One command that no script runs.
local function command(home, at_us, drift, is_replica, is_full, on_its_way, ...)
  begin(home, at_us, drift, is_replica, is_full, on_its_way)
  declared = nil
  return answered(pcall(call, ...))
end

local function compile(source, name)
  return setfenv(assert(loadstring(source, name)), env)
end

local function open()
  return {data = {}, expires = {}}
end

-- Have a key hold what somebody else put there: a kind, when it ends, and its parts.
local function put(home, key, kind, expiry, ...)
  data, expires, out, noted, declared, now_ms = home.data, home.expires, {}, 0, nil, 0
  data[key], expires[key] = nil, nil
  if kind == 'string' then
    data[key] = {kind = kind, text = (...)}
  elseif kind == 'hash' then
    C.HSET(key, ...)
  elseif kind == 'zset' then
    C.ZADD(key, ...)
  elseif kind == 'list' then
    data[key] = {kind = kind, items = {...}}
  end
  if kind and expiry then
    expires[key] = expiry
  end
  out = nil
end

local known = {}
for name in pairs(C) do
  known[#known + 1] = name
end
return compile, run, command, open, put, table.concat(known, ' ')
