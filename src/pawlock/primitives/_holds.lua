-- Holds of an explicit owner: the name's value is the owner, each hold has a field of its own with its own expiry.
-- The name lives as long as the longest hold.

-- Live holds {token -> expiry_ms}, how many, the longest, and the dead ones to purge. As for the server's own keys,
-- the last millisecond counts: else the name could be there without a hold.
local function read_holds()
  local all, holds = call('HGETALL', HOLDS), {live = {}, dead = {}, count = 0, longest = 0}
  for i = 1, #all, 2 do
    local expiry = tonumber(all[i + 1])
    if expiry >= now_ms then
      holds.live[all[i]] = expiry
      holds.count = holds.count + 1
      holds.longest = math.max(holds.longest, expiry)
    else
      holds.dead[#holds.dead + 1] = all[i]
    end
  end
  return holds
end

-- Adds a hold to the owner's, or raises it; the name's own expiry only rises. `name_expiry_ms` (never below the
-- true one) stands in for holds the server lost. HSET first: a server without memory refuses a new hold, and the dead
-- go when the key has a live one.
local function put_hold(token, expiry_ms, holds, name_expiry_ms)
  local longest = math.max(holds.longest, expiry_ms)
  if holds.count == 0 then
    longest = math.max(longest, name_expiry_ms)
  end
  call('HSET', HOLDS, token, digits(expiry_ms))
  call('PEXPIREAT', HOLDS, digits(longest))
  if longest > holds.longest then
    call('PEXPIREAT', NAME, digits(longest))
  end
  for at = 1, math.min(#holds.dead, 1000) do
    if holds.dead[at] ~= token then
      call('HDEL', HOLDS, holds.dead[at])
    end
  end
  if not holds.live[token] then
    holds.count = holds.count + 1
  end
  holds.live[token], holds.longest = expiry_ms, longest
end

-- The first hold of an owner: whatever an owner before left behind goes.
local function grant_hold(token, owner, expiry_ms, block, fence, holds)
  local cur = grant(owner, expiry_ms, block, fence)
  for field in pairs(holds.live) do
    holds.dead[#holds.dead + 1] = field
  end
  first_hold(token, expiry_ms, holds.dead)
  return cur
end

local function held_reply(cur, expiry_ms, count)
  return {'H', RID, cur, expiry_ms - now_ms, now_ms, count}
end

-- The fence of the owner's grant; a new one where the server lost it: the owner goes on, and each hold needs one.
local function shared_fence(fence, lease_ms)
  local cur = present_fence(fence)
  return cur > 0 and cur or mint(1, fence, lease_ms)
end
