-- The barrier: who waits (token by expiry of its ticket), who passed (token by until when that is remembered), and of
-- each of them a ticket: `w number channel` while it waits, `p index round` once it passed.
local BARRIER, WAITING, PASSED, TICKETS_OF, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- Reads every key, so that one of a wrong type stops the script before its first write. PTTL comes before TIME.
local function read_barrier(token)
  local left_ms = call('PTTL', WAITING)
--@include _clock
  local f = call('HMGET', BARRIER, 'v', 'parties', 'round', 'number')
  call('ZCARD', PASSED)
  local barrier = {parties = tonumber(f[2] or '0'), round = tonumber(f[3] or '0'), number = tonumber(f[4] or '0')}
  barrier.expiry_ms = now_ms + math.max(left_ms, 0)
  barrier.waits = tonumber(call('ZSCORE', WAITING, token) or '0')
  local index, round = string.match(call('HGET', TICKETS_OF, token) or '', '^p (%d+) (%d+)$')
  barrier.index, barrier.passed = tonumber(index), tonumber(round)
  return barrier, wire_refusal(f[1])
end

local function drop(key, tokens)
  for from = 1, #tokens, CHUNK do
    local to = math.min(from + CHUNK - 1, #tokens)
    call('ZREM', key, unpack(tokens, from, to))
    call('HDEL', TICKETS_OF, unpack(tokens, from, to))
  end
end

-- Forgets tickets that lapsed, and who passed long ago. Once all else is written: a key that loses its last member is
-- gone.
local function sweep()
  for _, key in ipairs({WAITING, PASSED}) do
    drop(key, call('ZRANGEBYSCORE', key, '-inf', digits(now_ms)))
  end
end
