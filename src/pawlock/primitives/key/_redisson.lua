-- The prelude of scripts of a key that is shared with Redisson, which holds a lock as a hash: one field, who holds it,
-- and how often. pawlock's field is its token, its value 1. To the scripts it is a string, as everywhere else; what has
-- another shape stops a script before its first write.
--
-- It knows the word `shared`, the argument before fence_ttl_ms: 'yield_after_ms yield_for_ms
-- redisson:sharded:fenced:unheard', the last three 0 or 1. sharded: Redisson subscribes with SSUBSCRIBE, as it does in a
-- cluster from Redis 7. fenced: one counter of fences with RFencedLock. unheard: the name is left free also while nobody of
-- Redisson listens. A script without fence_ttl_ms only reads, and has no such word. Its keys have two more before `holds`:
-- the queue of RFairLock and the counter of RFencedLock.
--
-- invariant: the hash has one field after each run that writes it, it is deleted or gets another field only where the
--   script deletes or sets the name, and its life is set by the same run; nobody is told that the name is free unless it
--   was free when the run ended.
--
-- The windows are those of `_plain`.
local NAME, FENCE, QUEUE, TICKETS, HOLDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local FAIR, COUNTER = KEYS[#KEYS - 2], KEYS[#KEYS - 1]
local RID = ARGV[#ARGV]
-- Of the record of a name whose holders are hashes.
local MARK, OTHER, CLASH = '1r', '1', '1 without pawlock.Key.redisson: two wires on one name'
local OPEN, MOST_MS = 'open', 10000
local AFTER_MS, FOR_MS, WAKE = string.match(ARGV[#ARGV - 2] or '', '^(%d+) (%d+) (redisson:%d:%d:%d)$')
AFTER_MS, FOR_MS = tonumber(AFTER_MS or '0'), tonumber(FOR_MS or '0')
local SHARDED, FENCED, UNHEARD = string.match(WAKE or '', '^redisson:(%d):(%d):(%d)$')
SHARDED, FENCED, UNHEARD = SHARDED == '1', FENCED == '1', UNHEARD == '1'
local CHANNEL = 'redisson_lock__channel' .. string.match(FAIR, '^redisson_lock_queue(.*)$')

-- The time, once `_clock` is included.
local now_us, now_ms
-- What the name's key was when it was read; what is left of a window; whether this run has left the name free, or has
-- set it to what ends sooner.
local holder, window_ms, freed, closed

-- Not `_clock`, which is to be read after the lives of keys.
local function read_window()
  local open = WAKE and redis.call('HGET', FENCE, 'open')
  if open then
    local time = redis.call('TIME')
    local left_ms = open - time[1] * 1000 - math.floor(time[2] / 1000)
    -- A longer one is of a clock that was set back since.
    window_ms = left_ms > 0 and left_ms <= MOST_MS and left_ms or nil
  end
end

-- The one field, or false. Two are enough to see that there is more than one.
local function read_holder()
  local found = redis.call('HRANDFIELD', NAME, 2, 'WITHVALUES')
  if #found == 0 then
    return false
  end
  local field, count = found[1], found[2]
  if redis.call('HEXISTS', NAME, 'mode') == 1 then
    error('WRONGTYPE a Redisson read-write lock (field mode) has this name', 0)
  end
  if #found > 2 or not string.find(field, '[:@]') or not string.find(count, '^[1-9]%d*$') then
    error('WRONGTYPE this hash is no Redisson lock (one field, a number)', 0)
  end
  return field
end

-- HSET first: a server without memory refuses it, and the key is never without a field.
local function take(value, expiry)
  local before = redis.call('HKEYS', NAME)
  redis.call('HSET', NAME, value, 1)
  for _, field in ipairs(before) do
    if field ~= value then
      redis.call('HDEL', NAME, field)
    end
  end
  return redis.call('PEXPIREAT', NAME, expiry)
end

--@include _mark

local function call(...)
  local command, key = ...
  if key == FENCE then
    if command == 'HMGET' then
      return read_record(select(3, ...))
    end
    if command == 'HSET' then
      return write_record(select(3, ...))
    end
  elseif key == TICKETS and command == 'HSET' and not marked then
    local reply = redis.call(...)
    mark()
    return reply
  end
  if key ~= NAME then
    return redis.call(...)
  end
  if command == 'GET' then
    holder = read_holder()
    if not holder and not window_ms then
      read_window()
    end
    return holder or (window_ms and OPEN)
  end
  if command == 'PTTL' and window_ms then
    return window_ms
  end
  if command == 'SET' then
    local _, _, value, _, expiry = ...
    freed, closed = false, string.find(value, '^closed@') ~= nil
    return take(value, expiry)
  end
  if command == 'DEL' then
    if freed then
      -- In a slot that moves to another node it could not be named again.
      return 0
    end
    freed = true
  end
  return redis.call(...)
end

local function tell(channel)
  local told = SHARDED and redis.pcall('SPUBLISH', channel, '0')
  if type(told) ~= 'number' then
    redis.pcall('PUBLISH', channel, '0')
  end
end

-- Tells the waiters of Redisson to ask: all of RLock, and the first of RFairLock. The last act: it may fail.
local function wake_others()
  if not freed and not closed or not WAKE then
    return
  end
  tell(CHANNEL)
  local first = redis.pcall('LINDEX', FAIR, 0)
  if type(first) == 'string' then
    tell(CHANNEL .. ':' .. first)
  end
end

-- Whether a waiter of Redisson listens, as far as this server may say.
local function is_heard(channel)
  local found = redis.pcall('PUBSUB', SHARDED and 'SHARDNUMSUB' or 'NUMSUB', channel)
  return (found[2] or 1) > 0
end

local function is_waited_for()
  if UNHEARD or is_heard(CHANNEL) then
    return true
  end
  local first = redis.pcall('LINDEX', FAIR, 0)
  return type(first) == 'string' and is_heard(CHANNEL .. ':' .. first)
end
