-- The latch: {there, count, left, round, opened, born, expiry_ms}. `round` rises with every reset, `opened` is the
-- last round whose count reached 0. A waiter that began in round r is released once `opened` is r or more.
local LATCH, WAITERS, SEEN = KEYS[1], KEYS[2], KEYS[3]

-- All three keys are read, so that one of a wrong type stops the script before its first write. PTTL comes before TIME.
local left_ms = call('PTTL', LATCH)
--@include _clock
local record = call('HMGET', LATCH, 'v', 'count', 'left', 'round', 'opened', 'born')
local version = record[1]
--@include _wire
call('ZCARD', WAITERS)
call('ZCARD', SEEN)
local latch = {there = version, expiry_ms = now_ms + math.max(left_ms, 0)}
for i, name in ipairs({'count', 'left', 'round', 'opened', 'born'}) do
  latch[name] = tonumber(record[i + 1] or '0')
end

-- Makes the latch if there is none, else keeps it alive. The first write is HSET for a new one, which a server out
-- of memory refuses, and PEXPIREAT for one that is there, after which it lets the rest pass.
local function keep(latch, count, ttl_ms)
  local expiry_ms = math.max(now_ms + ttl_ms, latch.expiry_ms)
  if not latch.there then
    latch.count, latch.left, latch.round, latch.opened, latch.born = count, count, now_us, 0, now_us
    call('HSET', LATCH, 'v', WIRE, 'count', digits(count), 'left', digits(count), 'round', digits(now_us),
      'opened', '0', 'born', digits(now_us))
  end
  call('PEXPIREAT', LATCH, digits(expiry_ms))
  latch.expiry_ms = expiry_ms
  outlive(SEEN, expiry_ms)
end

-- A request is remembered longer than a copy of it may come late, a part for the whole round.
local function is_seen(token, part)
  return call('ZSCORE', SEEN, token) or (part ~= '' and call('ZSCORE', SEEN, '=' .. part))
end

local function remember(latch, token, part, remember_ms)
  call('ZADD', SEEN, digits(now_ms + remember_ms), token)
  if part ~= '' then
    call('ZADD', SEEN, '+inf', '=' .. part)
  end
  outlive(SEEN, math.max(latch.expiry_ms, now_ms + remember_ms))
  -- Last: a key that loses its last member is gone.
  call('ZREMRANGEBYSCORE', SEEN, '-inf', digits(now_ms))
end
