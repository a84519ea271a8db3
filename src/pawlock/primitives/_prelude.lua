-- Shared by every script: the names of the keys and the one clock reading.
-- No shebang line: with one the server refuses the whole script when it is out of memory, also a release.
local call = redis.call
local NAME, FENCE, QUEUE, TICKETS, HOLDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[#KEYS]
local RID = ARGV[#ARGV]

-- The time, once `_clock` is included.
local now_us, now_ms
