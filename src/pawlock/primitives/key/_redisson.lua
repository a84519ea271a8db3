-- The prelude of scripts of a key that is shared with Redisson, which holds a lock as a hash: one field, who holds it,
-- and how often. pawlock's field is its token, its value 1. To the scripts it is a string, as everywhere else; what has
-- another shape stops a script before its first write. Their keys have one more at the end: the counter of fences of an
-- RFencedLock, or, where the name is none, `fence` once more.
--
-- invariant: the hash has one field after each run that writes it, it is deleted or gets another field only where the
--   script deletes or sets the name, and its life is set by the same run.
local NAME, FENCE, QUEUE, TICKETS, COUNTER = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local RID = ARGV[#ARGV]

-- The time, once `_clock` is included.
local now_us, now_ms

-- The one field, or false. Two are enough to see that there is more than one.
local function read_holder()
  local found = redis.call('HRANDFIELD', NAME, 2, 'WITHVALUES')
  if #found == 0 then
    return false
  end
  if redis.call('HEXISTS', NAME, 'mode') == 1 then
    error('WRONGTYPE a Redisson read-write lock (field mode) has this name', 0)
  end
  if #found > 2 or not string.find(found[1], '[:@]') or not string.find(found[2], '^[1-9]%d*$') then
    error('WRONGTYPE this hash is no Redisson lock (one field, a number)', 0)
  end
  return found[1]
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

local function call(...)
  local command, key, what, value, expiry = ...
  if key == NAME and command == 'GET' then
    return read_holder()
  end
  if key == NAME and command == 'SET' then
    return take(what, expiry)
  end
  local reply = redis.call(...)
  if key == FENCE and what == 'last' and COUNTER ~= FENCE then
    if command == 'HSET' then
      redis.call('SET', COUNTER, value, 'KEEPTTL')
    else
      local last = redis.call('GET', COUNTER) or '0'
      if not string.find(last, '^%d+$') or #last > 16 then
        error('WRONGTYPE ' .. COUNTER .. ' is no counter of RFencedLock', 0)
      end
      if last - (reply[1] or 0) > 0 then
        reply[1] = last
      end
    end
  end
  return reply
end
