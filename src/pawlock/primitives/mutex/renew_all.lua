-- Renews holders of several names in one run, if only their expiry has to be raised. Each name has two keys and three
-- arguments.
-- keys: name, fence
-- args: token, ttl_ms, fence_ttl_ms, rid
-- returns: {'H', rid, {left_ms or 0, ...}, now_ms}
-- invariant: an expiry is only ever raised, and only that of a name whose value is the token; 0 means that
--   nothing was done, and that the name has to be renewed by itself.
local WIDTH, WORDS = 2, 3
local lefts, lives, short = {}, {}, {}
-- All is read before anything is written, so that a key of a wrong type stops the script before its first write.
for index = 1, #KEYS / WIDTH do
  local name, at = KEYS[index * WIDTH - 1], (index - 1) * WORDS
  lefts[index] = 0
  if not string.find(ARGV[at + 1], '^closed[@.]') and call('GET', name) == ARGV[at + 1] then
    local left, ttl_ms, fence = call('PTTL', name), tonumber(ARGV[at + 2]), call('HMGET', KEYS[index * WIDTH], 'last', 'v', 'x')
    short[index] = left < ttl_ms
    lefts[index], lives[index] = math.max(left, ttl_ms), fence
  end
end
--@include _clock
for index, left in ipairs(lefts) do
  if left > 0 then
    -- The record of the fences is left alone only where it is promised for long enough; else `renew` writes it.
    local last, version, promised = unpack(lives[index])
    local from = math.max(now_ms, math.ceil((last or 0) / 1000))
    local least = math.max(now_ms + left, from + ARGV[index * WORDS] * 23 / 24)
    if version ~= '1' or (promised or 0) - least < 0 then
      lefts[index] = 0
    elseif short[index] then
      call('PEXPIREAT', KEYS[index * WIDTH - 1], string.format('%.0f', now_ms + left))
    end
  end
end
return {'H', RID, lefts, now_ms}
