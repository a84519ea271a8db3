-- Acquires several names at once, or none of them. Each name has six keys and three arguments.
-- keys: name, fence, queue, tickets, dead, holds
-- args: token, ttl_ms, fence_ttl_ms, rid
-- returns: {'H', rid, {cur, ...}, {pttl_ms, ...}, now_ms}
--   | {'B', rid, index, holder_pttl_ms, foreign, holder_public} | {'X', rid, index}
-- invariant: afterwards each name is its token's, or this run gave none of them to its token; a name is given only
--   while it is absent with no live ticket queued, no expiry falls, and a late copy finds its tokens
--   holding or dead.
--@include _token
--@include _fence
--@include _queue
local WIDTH, WORDS = 6, 3

-- The functions above work on one name: this says on which.
local function turn_to(index)
  local at = (index - 1) * WIDTH
  NAME, FENCE, QUEUE, TICKETS, HOLDS = KEYS[at + 1], KEYS[at + 2], KEYS[at + 3], KEYS[at + 4], KEYS[at + 6]
  FENCE_TTL = tonumber(ARGV[index * WORDS])
  return KEYS[at + 5]
end

-- All is read before anything is written, so that a key of a wrong type stops the script before its first write.
--@include _clock
local names, barred = {}, nil
for index = 1, #KEYS / WIDTH do
  local dead, at = turn_to(index), (index - 1) * WORDS
  local one = {token = ARGV[at + 1], ttl_ms = tonumber(ARGV[at + 2]), value = call('GET', NAME)}
  if is_guessable(one.token) then
    return redis.error_reply(GUESSABLE)
  end
  local refusal
  one.fence, refusal = read_fence()
  if refusal then
    return refusal
  end
  if one.value ~= one.token and call('EXISTS', dead) == 1 then
    barred = barred or index
  end
  local head = not one.value and call('ZRANGE', QUEUE, 0, 0)[1]
  one.found = head and plan(head)
  names[index] = one
end
if barred then
  return {'X', RID, barred}
end
--@knows FENCE hash
--@knows QUEUE zset
--@knows TICKETS hash
local busy = nil
for index, one in ipairs(names) do
  local value = one.value or (one.found and one.found.value)
  if value and value ~= one.token then
    busy = busy or index
  end
end
local mail, reply = {}, nil
if busy then
  -- What is free goes to whoever waits for it.
  for index, one in ipairs(names) do
    turn_to(index)
    if one.found then
      pump(one.found, one.fence)
      one.value = one.found.value
      mail[#mail + 1], outbox = outbox, {}
    end
  end
  turn_to(busy)
  local value = names[busy].value
  reply = {'B', RID, busy, call('PTTL', NAME), is_foreign(value), public(value)}
else
  local curs, lefts = {}, {}
  for index, one in ipairs(names) do
    turn_to(index)
    if one.value == one.token then
      curs[index], lefts[index] = present_fence(one.fence), call('PTTL', NAME)
    else
      curs[index], lefts[index] = grant(one.token, now_ms + one.ttl_ms, 1, one.fence), one.ttl_ms
    end
  end
  reply = {'H', RID, curs, lefts, now_ms}
end
for index, one in ipairs(names) do
  turn_to(index)
  if one.found then
    remove(one.found.drop)
  end
end
for _, message in ipairs(mail) do
  outbox = message
  announce()
end
return reply
