-- Runs a command on a key, unless a later holder claimed or wrote it.
-- keys: data, fence
-- args: fence, keep_ms (0: indefinitely), and the command without its key (nothing: the key is claimed)
-- returns: {1, what the command answered} | {0, the fence that was seen} | {-1}: the second key holds no fence
-- invariant: the greatest fence seen is noted before the command runs and never falls, so data is never written
--   under a fence below the one that is kept beside it.
local seen, fence, keep_ms = redis.pcall('GET', KEYS[2]) or '0', ARGV[1], tonumber(ARGV[2])
if type(seen) == 'table' or not (seen == '0' or string.match(seen, '^[1-9]%d*$')) then
  return {-1}
end
-- As text of digits: a number of Lua holds 53 bits, a fence may have 63.
if #seen > #fence or (#seen == #fence and seen > fence) then
  return {0, seen}
end
-- It never ends sooner than it would have.
local left_ms = redis.call('PTTL', KEYS[2])
if keep_ms > 0 and left_ms ~= -1 then
  redis.call('SET', KEYS[2], fence, 'PX', math.max(left_ms, keep_ms))
else
  redis.call('SET', KEYS[2], fence)
end
if #ARGV == 2 then
  return {1}
end
return {1, redis.call(ARGV[3], KEYS[1], unpack(ARGV, 4))}
