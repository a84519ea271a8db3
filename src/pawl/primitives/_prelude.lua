-- Shared by every script: the names of the keys, the one clock reading, the fence, the grant.
-- No shebang line: with one the server refuses the whole script when it is out of memory, also a release.
local call = redis.call
local NAME, FENCE, QUEUE, TICKETS, HOLDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local RID = ARGV[#ARGV]
local WIRE, DAY_MS, HOUR_MS = '1', 86400000, 3600000

-- The only reading of the clock in a run: some servers let it move within a script, some freeze it. A script that
-- compares a key's PTTL with it reads that PTTL before: the sum is then never below the key's true expiry.
local now_us, now_ms
local function read_clock()
  local time = call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  now_ms = math.floor(now_us / 1000)
end

-- Lua would write large numbers as 1.7e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- The fence record {last, v, x, cur}; a second value is the refusal of a name kept by another wire version.
local function read_fence()
  local fence = call('HMGET', FENCE, 'last', 'v', 'x', 'cur')
  if fence[2] and fence[2] ~= WIRE then
    return fence, redis.error_reply('PAWLWIRE this name is used by pawl wire version ' .. fence[2])
  end
  return fence
end

-- The first fence of the present grant; 0 when the server lost the fence key.
local function present_fence(fence)
  return tonumber(fence[4] or '0')
end

-- Gives the name to `value` and a block of fences to its holder. `last` is the END of the reserved block, so
-- blocks never overlap, whatever the clock does. Returns the first fence of the block.
local function grant(value, expiry_ms, block, fence)
  local cur = math.max(tonumber(fence[1] or '0') + 1, now_us)
  local last = cur + math.max(block, 1) - 1
  local needed_ms = math.max(now_ms, math.ceil(last / 1000)) + DAY_MS
  call('SET', NAME, value, 'PXAT', digits(expiry_ms))
  if fence[2] and tonumber(fence[3] or '0') >= needed_ms then
    call('HSET', FENCE, 'last', digits(last), 'cur', digits(cur))
  else
    local expiry = digits(needed_ms + HOUR_MS)
    call('HSET', FENCE, 'last', digits(last), 'cur', digits(cur), 'v', WIRE, 'x', expiry)
    call('PEXPIREAT', FENCE, expiry)
  end
  return cur
end
