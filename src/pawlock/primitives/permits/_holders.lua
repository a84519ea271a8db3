-- The holders of permits: one sorted set, member = <mode>:<token>, score = expiry. A mode is a weight (a reader's is
-- 1) or 'x' (a writer): exclusive by its kind, not by weighing everything.
--@include _tickets
local MOST, DAY_MS = 64, 86400000

-- The expiry and the mode of a holder; no expiry if it holds nothing. A token that asks as a writer may be a reader
-- by now, and one that asks as a reader may still be a writer here: its downgrade is on the way.
local function find(token, mode)
  local expiry = call('ZSCORE', NAME, mode .. ':' .. token)
  if not expiry and (mode == '1' or mode == 'x') then
    mode = mode == '1' and 'x' or '1'
    expiry = call('ZSCORE', NAME, mode .. ':' .. token)
  end
  return tonumber(expiry), mode
end

-- The limit in force and the number that was declared with it; `permits`, what the caller takes it to be, where the
-- server has none. 0: no limit. A limit that was changed is kept for a day at least: nobody declares it anew.
local function read_limit(permits)
  local kept = permits > 0 and call('HMGET', FENCE, 'limit', 'declared') or {}
  if kept[1] ~= kept[2] then
    FENCE_TTL = math.max(FENCE_TTL, DAY_MS)
  end
  return tonumber(kept[1] or permits), tonumber(kept[2] or permits), permits > 0 and not kept[1]
end

local function keep_limit(limit, declared, lease_ms)
  if limit ~= declared then
    FENCE_TTL = math.max(FENCE_TTL, DAY_MS)
  end
  local promised, _, until_ms = term(tonumber(fence[1] or '0'), lease_ms)
  call('HSET', FENCE, 'limit', digits(limit), 'declared', digits(declared), 'v', WIRE, 'x', digits(promised))
  if until_ms then
    prolong(until_ms)
  end
  fence[2], fence[3] = WIRE, digits(promised)
end

-- Who holds, as far as it decides who else may: writes nothing. As for the server's own keys, the last millisecond
-- counts. Weights are added up only where there is a limit. `leaving`: a member that goes, and counts no more.
local function survey(limit, leaving)
  local now = digits(now_ms)
  local state = {limit = limit, weight = 0, dead = call('ZRANGEBYSCORE', NAME, '-inf', '(' .. now)}
  state.count = call('ZCARD', NAME) - #state.dead
  if leaving and tonumber(call('ZSCORE', NAME, leaving) or '-1') >= now_ms then
    state.count = state.count - 1
  end
  -- A writer is alone.
  local few = limit > 0 or state.count == 1
  local members = few and call('ZRANGEBYSCORE', NAME, now, '+inf') or {}
  for _, member in ipairs(members) do
    if member ~= leaving then
      if string.sub(member, 1, 2) == 'x:' then
        state.exclusive = true
      end
      state.weight = state.weight + tonumber(string.match(member, '^(%d+):') or '0')
    end
  end
  return state
end

local function fits(mode, state)
  if mode == 'x' then
    return state.count == 0
  end
  return not state.exclusive and (state.limit == 0 or state.weight + tonumber(mode) <= state.limit)
end

-- Counts one more holder in.
local function admit(mode, state)
  state.count = state.count + 1
  state.exclusive = state.exclusive or mode == 'x'
  state.weight = state.weight + (tonumber(mode) or 0)
end

-- Whether nothing that others do can ever let it in.
local function hopeless(mode, state)
  return state.limit > 0 and tonumber(mode) > state.limit
end

-- Reads the queue for as far as it can be served, at most MOST grants, and writes nothing, so that a key of a wrong
-- type stops the script before its first write. The ticket of `own` counts as one that expires at `own_expiry_ms`.
-- Afterwards `state` is what it will be.
local function plan(state, own, own_expiry_ms)
  local found, from = {drop = {}, refused = {}, grants = {}, longest = 0}, 0
  local members = call('ZRANGE', QUEUE, 0, BATCH - 1)
  while #members > 0 do
    local tickets = call('HMGET', TICKETS, unpack(members))
    for i, member in ipairs(members) do
      local expiry, _, _, channel, mode = parse(tickets[i])
      if member == own and own_expiry_ms and expiry > 0 then
        expiry = own_expiry_ms
      end
      if expiry > now_ms then
        if hopeless(mode, state) then
          found.refused[#found.refused + 1] = {token = member, channel = channel}
        elseif #found.grants < MOST and fits(mode, state) then
          admit(mode, state)
          found.grants[#found.grants + 1] = {token = member, mode = mode, expiry = expiry, channel = channel}
          found.mine = member == own and found.grants[#found.grants] or found.mine
        else
          found.blocked = true
          return found
        end
      end
      found.drop[#found.drop + 1] = member
    end
    from = from + #members
    members = call('ZRANGE', QUEUE, from, from + BATCH - 1)
  end
  return found
end

local function tell(channel, token, fence, expiry_ms)
  if channel ~= '-' then
    outbox[#outbox + 1] = channel
    outbox[#outbox + 1] = table.concat({token, digits(fence), digits(expiry_ms), digits(now_ms)}, ' ')
  end
end

-- Carries out a plan, but for who goes: those that can never be served are woken (by no expiry of 0, which ends a lease);
-- the others hold. A hand-off changes
-- the role of a lease, never its expiry: the holder's expiry is the ticket's. Its first write is HSET, which a server
-- without memory refuses. Returns what is left in HOLDS of holders that the server forgot with the set.
local function settle(state, found, own)
  for _, one in ipairs(found.refused) do
    tell(one.channel, one.token, 0, 1)
  end
  local grants, stale, granted = found.grants, {}, {}
  if #grants == 0 then
    return stale
  end
  local longest = 0
  for _, one in ipairs(grants) do
    longest, granted[one.token] = math.max(longest, one.expiry), true
  end
  -- Nobody held.
  for _, token in ipairs(state.count == #grants and call('HKEYS', HOLDS) or {}) do
    if not granted[token] then
      stale[#stale + 1] = token
    end
  end
  local cur = mint(#grants, longest)
  for i, one in ipairs(grants) do
    one.fence = cur + i - 1
    call('ZADD', NAME, digits(one.expiry), one.mode .. ':' .. one.token)
    call('HSET', HOLDS, one.token, digits(one.fence))
    if one.token ~= own then
      tell(one.channel, one.token, one.fence, one.expiry)
    end
  end
  outlive(NAME, longest)
  outlive(HOLDS, longest)
  return stale
end

-- Takes out the dead, and what `settle` found of others. After all else is written, and read: a key that loses its last
-- member is gone. Who holds again by now stays.
local function bury_holders(state, found, stale)
  local members, granted = {}, {}
  for _, one in ipairs(found.grants) do
    granted[one.token], granted[one.mode .. ':' .. one.token] = true, true
  end
  for _, member in ipairs(state.dead) do
    local token = string.match(member, '^%w+:(.*)$')
    if not granted[member] then
      members[#members + 1] = member
    end
    if not granted[token] then
      stale[#stale + 1] = token
    end
  end
  for from = 1, #members, CHUNK do
    call('ZREM', NAME, unpack(members, from, math.min(from + CHUNK - 1, #members)))
  end
  for from = 1, #stale, CHUNK do
    call('HDEL', HOLDS, unpack(stale, from, math.min(from + CHUNK - 1, #stale)))
  end
end

-- The first who will be gone: its expiry and its public part.
local function first_end()
  local first = call('ZRANGEBYSCORE', NAME, digits(now_ms), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(first[2]), first[1] and shown(first[1])
end

local function held_reply(one)
  return {'H', RID, one.fence, one.expiry - now_ms, now_ms, one.mode}
end

function queued_reply(rank, expiry_ms)
  local ends = first_end()
  return {'Q', RID, rank, ends and math.max(0, ends - now_ms) or -2, expiry_ms, now_ms, 0}
end
