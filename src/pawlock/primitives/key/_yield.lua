-- When the name is left free for other programs, and how they are told of it.

-- How long clients of pawlock pass the name on from `since`: AFTER_MS, give or take a fifth. Of two who poll at one period,
-- the same one would otherwise be the first to ask in window after window.
local function run_ms(since)
  return AFTER_MS + math.min(AFTER_MS, 500) * (since * 31 % 401 - 200) / 1000
end

-- Whether the present holder is to leave the name free. Without a record of the fences nothing is noted.
local function is_due()
  if AFTER_MS == 0 or FOR_MS == 0 or not holder or is_foreign(holder) == 1 then
    return false
  end
  local noted = call('HMGET', FENCE, 'v', 'since')
  local passed_ms = now_ms - (noted[2] or 0)
--@redisson   if not is_waited_for() then
--@redisson     return false
--@redisson   end
  -- What is far ahead was noted before the clock was set back.
  return noted[1] and (passed_ms > run_ms(noted[2] or 0) or passed_ms < -MOST_MS)
end

-- The next waiter keeps its place, and is told to ask again.
local function hold_back(found)
  found.asks = {found.channel, found.token}
  found.token, found.value, found.owned, found.stale = nil, nil, nil, nil
  found.drop[#found.drop] = nil
end

-- Leaves the name free; whoever calls it has let DEL pass on a server without memory.
local function open_window(found)
  if window_ms then
    return
  end
  local until_ms = digits(now_ms + FOR_MS)
  call('HSET', FENCE, 'open', until_ms, 'since', until_ms)
  call('DEL', NAME)
  -- For what names it from here on, the prelude answers by itself.
  --@keeps NAME
  window_ms = FOR_MS
  if found.asks and found.asks[1] ~= '-' then
    outbox = {found.asks[1], found.asks[2] .. ' 0 0 ' .. digits(now_ms)}
  end
end
