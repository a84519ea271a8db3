-- Shared by every script: the names of the keys and the one clock reading.
-- No shebang line: with one the server refuses the whole script when it is out of memory, also a release.
local call = redis.call
local NAME, FENCE, QUEUE, TICKETS, HOLDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local RID = ARGV[#ARGV]

-- The only reading of the clock in a run: some servers let it move within a script, some freeze it. A script that
-- compares a key's PTTL with it reads that PTTL before: the sum is then never below the key's true expiry.
local now_us, now_ms
local function read_clock()
  if now_us then
    return
  end
  local time = call('TIME')
  now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  now_ms = math.floor(now_us / 1000)
end
