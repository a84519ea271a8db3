-- What latches, barriers and elections share: text of numbers, keys that only live longer, whom to wake.
-- Who is to be woken stands in a sorted set, `token channel` by expiry in server time. One that died lapses there;
-- what is published to it until then is heard by nobody.
--@include _lives

-- Until when a token is noted under a channel; 0: it is not.
local function noted_until(key, token, channel)
  local score = channel ~= '' and tonumber(call('ZSCORE', key, token .. ' ' .. channel) or '0') or 0
  return score > now_ms and score or 0
end

-- Notes whom to wake, instead of the same one under a channel that it had before. Refused if too many are noted; by a
-- server without memory too, unless the script wrote something that such a server lets pass. What goes is taken out once
-- the rest is written: a key that loses its last member is gone.
local function note(key, token, channel, former, expiry_ms, most)
  local had, before = noted_until(key, token, channel), 0
  if former ~= channel then
    before = noted_until(key, token, former)
  end
  local others = call('ZCOUNT', key, '(' .. digits(now_ms), '+inf') - (before > 0 and 1 or 0)
  if had == 0 and others >= most then
    return false
  end
  call('ZADD', key, digits(math.max(expiry_ms, had)), token .. ' ' .. channel)
  outlive(key, expiry_ms)
  call('ZREMRANGEBYSCORE', key, '-inf', digits(now_ms))
  if before > 0 then
    call('ZREM', key, token .. ' ' .. former)
  end
  return true
end

-- The last act of a script: wakes all that are noted. A user without the right to publish must not turn what was
-- done into an error.
local function wake(members, first, second)
  for _, member in ipairs(members) do
    local token, channel = string.match(member, '^(%S+) (%S+)$')
    if channel and channel ~= '-' then
      redis.pcall('PUBLISH', channel, table.concat({token, digits(first), digits(second), digits(now_ms)}, ' '))
    end
  end
end
