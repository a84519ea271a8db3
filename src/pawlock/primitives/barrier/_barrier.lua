-- The barrier: who waits (token by expiry of its ticket), who passed (token by until when that is remembered), and of
-- each of them a ticket: `w number channel` while it waits, `p index round` once it passed.
-- `token`: who asks.
local BARRIER, WAITING, PASSED, TICKETS_OF, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- Every key is read, so that one of a wrong type stops the script before its first write. PTTL comes before TIME.
local left_ms = call('PTTL', WAITING)
--@include _clock
local record = call('HMGET', BARRIER, 'v', 'parties', 'round', 'number')
local version = record[1]
--@include _wire
call('ZCARD', PASSED)
local barrier = {expiry_ms = now_ms + math.max(left_ms, 0)}
for i, name in ipairs({'parties', 'round', 'number'}) do
  barrier[name] = tonumber(record[i + 1] or '0')
end
-- Until when the token waits, and where it passed.
barrier.waits = tonumber(call('ZSCORE', WAITING, token) or '0')
local index, passed = string.match(call('HGET', TICKETS_OF, token) or '', '^p (%d+) (%d+)$')
barrier.index, barrier.passed = tonumber(index), tonumber(passed)

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
