-- The fence and the grant.
--@include _lives
-- How long the record is kept without a use; of no meaning in a script that only reads it.
local FENCE_TTL = tonumber(ARGV[#ARGV - 1])
-- The record {last, v, x, cur}.
local fence = call('HMGET', FENCE, 'last', 'v', 'x', 'cur')
local version = fence[2]
--@include _wire

-- The first fence of the present grant; 0 when the server lost the fence key.
local function present_fence()
  return tonumber(fence[4] or '0')
end

-- Until when the record is promised (`x`, which never falls: another client may keep it longer), whether that is to be
-- written, and until when its key lives: as long as the lease, too. The promise is for FENCE_TTL past now, or past the
-- time that `last` stands for; it is made again once a 24th of that is over.
local function term(last, lease_ms)
  local from, promised = math.max(now_ms, math.ceil(last / 1000)), tonumber(fence[3] or '0')
  local due = not fence[2] or (FENCE_TTL > 0 and promised < from + FENCE_TTL * 23 / 24)
  if due then
    promised = from + FENCE_TTL
  end
  return promised, due, (due or lease_ms > promised) and math.max(promised, lease_ms)
end

-- Raises the life of the record; another lease may need it for longer.
local function prolong(until_ms)
  if not fence[2] or call('PTTL', FENCE) < until_ms - now_ms then
    call('PEXPIREAT', FENCE, digits(until_ms))
  end
end

-- Reserves a block of fences for a lease. `last` is the END of the reserved block, so blocks never overlap, whatever
-- the clock does. Returns the first fence of the block.
local function mint(block, lease_ms)
  local cur = math.max(tonumber(fence[1] or '0') + 1, now_us)
  local last = cur + math.max(block, 1) - 1
  local promised, _, until_ms = term(last, lease_ms)
  call('HSET', FENCE, 'last', digits(last), 'cur', digits(cur), 'v', WIRE, 'x', digits(promised))
  if until_ms then
    prolong(until_ms)
  end
  fence[1], fence[2], fence[3], fence[4] = digits(last), WIRE, digits(promised), digits(cur)
  return cur
end

-- Keeps the record of a lease that goes on, or of somebody who waits (lease_ms 0). One that the server lost is not
-- made again. HDEL of nothing first: a server without memory then lets HSET pass.
local function keep_fence(lease_ms)
  if not fence[2] then
    return
  end
  local promised, due, until_ms = term(tonumber(fence[1] or '0'), lease_ms)
  if until_ms then
    prolong(until_ms)
  end
  if due then
    call('HDEL', FENCE, '')
    call('HSET', FENCE, 'x', digits(promised))
    fence[3] = digits(promised)
  end
end

-- The name is idle: its record is not kept for a lease that is over, but for as long as somebody wished.
local function trim_fence()
  if fence[2] then
    local last_ms = math.floor(tonumber(fence[1] or '0') / 1000)
    local until_ms = math.max(tonumber(fence[3] or '0'), last_ms + 1, now_ms + FENCE_TTL)
    if call('PTTL', FENCE) > until_ms - now_ms then
      call('PEXPIREAT', FENCE, digits(until_ms))
    end
  end
end

-- Gives the name to `value`, and a block of fences to its holder; returns the first of them.
local function grant(value, expiry_ms, block)
  call('SET', NAME, value, 'PXAT', digits(expiry_ms))
  return mint(block, expiry_ms)
end
