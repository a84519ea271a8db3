-- What a server does with pawlock's scripts: the commands that they use on keys in memory, and how a script runs.
-- Exactly those commands and options, with Redis' rules for types, expiry, memory and replicas; anything else fails
-- loudly, so that a script can never pass here by a command that was guessed at. A test holds this to real servers,
-- command by command.
--
-- Every change is also noted in `out`, four words each, for observers of the keys: `d` key was
-- deleted, `x` key expires at, `s` key is a string, `h` / `H` field of a hash was set / deleted, `z` / `Z` member of a
-- sorted set was put / taken out, `l` key is an empty list, `a` an element at its end.
local host = ...
-- A script runs too seldom for machine code to pay.
if jit then
  jit.off()
end
local floor, format, upper, sub, match, huge = math.floor, string.format, string.upper, string.sub, string.match, math.huge
local OK = {ok = 'OK'}
local NO_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
local NOT_HERE = 'ERR Script attempted to access a non local key in a cluster node'
local READ_ONLY = "READONLY You can't write against a read only replica."

-- Of the present script or command: the keys, its time, and what it may do.
local data, expires, now_us, now_ms, slip_us, drift_us, replica, no_memory, moving
local declared, dirty, changes, failure
local out, noted

local function refuse(text)
  error({err = text}, 0)
end

-- The fault is the node's, so nothing may hide it.
local function unsupported(text)
  failure = failure or text
  error(text, 0)
end

local function note(op, key, one, two)
  out[noted + 1], out[noted + 2], out[noted + 3], out[noted + 4] = op, key, one, two
  noted = noted + 4
end

-- Values -------------------------------------------------------------------------------------------------------------

local function digits(number)
  return number == floor(number) and format('%.0f', number) or format('%.17g', number)
end

-- An argument as a script passes it, in the form in which the command gets it.
local function text(value)
  local kind = type(value)
  if kind == 'string' then
    return value
  elseif kind == 'number' then
    return digits(value)
  end
  refuse('ERR Lua redis lib command arguments must be strings or integers')
end

local function texts(...)
  local words = {...}
  for i = 1, select('#', ...) do
    words[i] = text(words[i])
  end
  return words
end

local function integer(value)
  if type(value) == 'number' and value == floor(value) then
    return value
  end
  local word = text(value)
  if not match(word, '^%-?%d+$') then
    refuse('ERR value is not an integer or out of range')
  end
  return tonumber(word)
end

local ENDLESS = {inf = huge, ['+inf'] = huge, ['-inf'] = -huge}

local function score_of(value)
  local word = text(value)
  return ENDLESS[word] or tonumber(word) or refuse('ERR value is not a valid float')
end

local function score_text(score)
  if score == huge or score == -huge then
    return score > 0 and 'inf' or '-inf'
  end
  return digits(score)
end

-- Keys ---------------------------------------------------------------------------------------------------------------

local function drop(key)
  local there = data[key] ~= nil
  data[key], expires[key] = nil, nil
  if there then
    note('d', key, false, false)
  end
  return there
end

-- What a key holds; one that is past its expiry is deleted here, as Redis does when it is touched.
local function lookup(key)
  if declared and not declared[key] then
    unsupported('the undeclared key ' .. key)
  end
  local expiry = expires[key]
  if expiry and expiry < now_ms then
    drop(key)
    return nil
  end
  return data[key]
end

local function kept(key, kind)
  local value = lookup(key)
  if value and value.kind ~= kind then
    refuse('WRONGTYPE Operation against a key holding the wrong kind of value')
  end
  return value
end

local function expire(key, expiry)
  expires[key] = expiry
  note('x', key, expiry, false)
end

local C = {}

function C.DEL(...)
  local gone = 0
  for i = 1, select('#', ...) do
    local key = text((select(i, ...)))
    if lookup(key) and drop(key) then
      gone = gone + 1
    end
  end
  return gone
end

function C.EXISTS(...)
  local there = 0
  for i = 1, select('#', ...) do
    if lookup(text((select(i, ...)))) then
      there = there + 1
    end
  end
  return there
end

function C.GET(key)
  local value = kept(text(key), 'string')
  return value and value.text or false
end

function C.SET(name, value, option, amount, more)
  local key = text(name)
  lookup(key)
  local expiry
  if option then
    local what = upper(text(option))
    if more or (what ~= 'PX' and what ~= 'PXAT') then
      unsupported('SET with ' .. what)
    end
    expiry = integer(amount)
    if what == 'PX' and expiry > 0 then
      -- Counted from the beginning of the script, as a server does.
      expiry = expiry + now_ms
    end
    if expiry <= 0 then
      refuse("ERR invalid expire time in 'set' command")
    end
  end
  data[key], expires[key] = {kind = 'string', text = text(value)}, nil
  note('s', key, data[key].text, false)
  if expiry then
    expire(key, expiry)
  end
  return OK
end

function C.TYPE(key)
  local value = lookup(text(key))
  return {ok = value and value.kind or 'none'}
end

function C.PEXPIREAT(name, at, more)
  if more then
    unsupported('PEXPIREAT with options')
  end
  local key, expiry = text(name), integer(at)
  if not lookup(key) then
    return 0
  elseif expiry <= now_ms then
    drop(key)
  else
    expire(key, expiry)
  end
  return 1
end

function C.PTTL(name)
  local key = text(name)
  if not lookup(key) then
    return -2
  end
  local expiry = expires[key]
  if not expiry then
    return -1
  end
  local left = expiry - floor((now_us + slip_us) / 1000)
  return left > 0 and left or 0
end

function C.PEXPIRETIME(name)
  local key = text(name)
  return lookup(key) and (expires[key] or -1) or -2
end

function C.TIME()
  slip_us = drift_us
  local seconds = floor(now_us / 1000000)
  return {format('%.0f', seconds), format('%.0f', now_us - seconds * 1000000)}
end

function C.DBSIZE()
  local count = 0
  for _ in pairs(data) do
    count = count + 1
  end
  return count
end

-- Everything in one step, which a server may give as well.
function C.SCAN(_, match_word, pattern, count_word, _, more)
  if more or upper(text(match_word)) ~= 'MATCH' or upper(text(count_word)) ~= 'COUNT' then
    unsupported('SCAN in another form')
  end
  local glob = text(pattern):gsub('%*%*+', '*'):gsub('[%^%$%(%)%%%.%[%]%+%-%?]', '%%%0')
  local fits = '^' .. glob:gsub('\\(.)', '%1'):gsub('%*', '.*') .. '$'
  local found = {}
  for key in pairs(data) do
    if match(key, fits) and not (expires[key] and expires[key] < now_ms) then
      found[#found + 1] = key
    end
  end
  return {'0', found}
end

function C.INFO(section)
  return host('INFO', section and text(section) or '')
end

function C.PUBLISH(channel, message)
  return host('PUBLISH', text(channel), text(message))
end
