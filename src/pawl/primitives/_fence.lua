-- The fence and the grant.
local WIRE, DAY_MS, HOUR_MS = '1', 86400000, 3600000
local format = string.format

-- Lua would write large numbers as 1.7e+15.
local function digits(number)
  return format('%.0f', number)
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

-- Reserves a block of fences. `last` is the END of the reserved block, so blocks never overlap, whatever the clock
-- does. Returns the first fence of the block.
local function mint(block, fence)
  local cur = math.max(tonumber(fence[1] or '0') + 1, now_us)
  local last = cur + math.max(block, 1) - 1
  local needed_ms = math.max(now_ms, math.ceil(last / 1000)) + DAY_MS
  if fence[2] and tonumber(fence[3] or '0') >= needed_ms then
    call('HSET', FENCE, 'last', digits(last), 'cur', digits(cur))
  else
    local expiry = digits(needed_ms + HOUR_MS)
    call('HSET', FENCE, 'last', digits(last), 'cur', digits(cur), 'v', WIRE, 'x', expiry)
    call('PEXPIREAT', FENCE, expiry)
  end
  return cur
end

-- Gives the name to `value`, and a block of fences to its holder; returns the first of them.
local function grant(value, expiry_ms, block, fence)
  call('SET', NAME, value, 'PXAT', digits(expiry_ms))
  return mint(block, fence)
end
