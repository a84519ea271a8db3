-- The prelude of scripts of a key that is shared with other programs, which hold it as a string with an expiry.
-- It knows the word `shared`, the argument before fence_ttl_ms: 'yield_after_ms yield_for_ms wake', where wake is
-- '-', 'publish:<bytes of the channel>:<channel><body>' or 'push:<ttl_ms>:<list>'. A script without fence_ttl_ms only
-- reads, and has no such word.
--
-- Once clients of pawlock have passed the name on for yield_after_ms, whoever holds it leaves it free for yield_for_ms, the
-- window: until `open`, a field of the fence record, the name is to pawlock's scripts as if another program held it.
-- `since` is when clients of pawlock began to pass it on: the time of the last grant of a free name, or of the window's end.
local NAME, FENCE, QUEUE, TICKETS, HOLDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local RID = ARGV[#ARGV]
local MARK, OTHER, CLASH = '1', '1r', '1 with pawlock.Key.redisson: two wires on one name'
local OPEN, MOST_MS = 'open', 10000
local AFTER_MS, FOR_MS, WAKE = string.match(ARGV[#ARGV - 2] or '', '^(%d+) (%d+) (.+)$')
AFTER_MS, FOR_MS = tonumber(AFTER_MS or '0'), tonumber(FOR_MS or '0')

-- The time, once `_clock` is included.
local now_us, now_ms

-- What the name's key was when it was read; what is left of a window; whether this run has left the name free.
local holder, window_ms, freed

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
    holder = redis.call('GET', NAME)
    if not holder and not window_ms then
      read_window()
    end
    return holder or (window_ms and OPEN)
  end
  if command == 'PTTL' and window_ms then
    return window_ms
  end
  if command == 'DEL' and freed then
    -- In a slot that moves to another node it could not be named again.
    return 0
  end
  if command == 'DEL' or command == 'SET' then
    freed = command == 'DEL'
  end
  return redis.call(...)
end

-- Tells sleeping waiters of other programs that the name is free. The last act: it may fail.
local function wake_others()
  if not freed or not WAKE then
    return
  end
  local size, rest = string.match(WAKE, '^publish:(%d+):(.*)$')
  if size then
    redis.pcall('PUBLISH', string.sub(rest, 1, size), string.sub(rest, size + 1))
    return
  end
  local ttl_ms, list = string.match(WAKE, '^push:(%d+):(.*)$')
  if ttl_ms then
    redis.pcall('DEL', list)
    redis.pcall('LPUSH', list, '1')
    redis.pcall('PEXPIRE', list, ttl_ms)
  end
end
