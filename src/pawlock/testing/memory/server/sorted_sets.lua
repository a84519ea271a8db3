-- Sorted sets: scores by member, and the order while nothing changes ----------------------------------------------------

local function zset(key)
  return kept(text(key), 'zset')
end

local function in_order(found)
  local order, scores = found.order, found.scores
  if not order then
    order = {}
    for member in pairs(scores) do
      order[#order + 1] = member
    end
    table.sort(order, function(one, other)
      local a, b = scores[one], scores[other]
      if a == b then
        return one < other
      end
      return a < b
    end)
    found.order = order
  end
  return order
end

local function put_member(found, key, member, score)
  local had = found.scores[member]
  note('z', key, member, score)
  if had == score then
    return 0
  end
  local order = found.order
  local last = order and order[#order]
  found.scores[member] = score
  if not had and last and found.scores[last] < score then
    order[#order + 1] = member
  else
    found.order = nil
  end
  if not had then
    found.count = found.count + 1
  end
  return had and 0 or 1
end

local function new_zset(key)
  data[key] = {kind = 'zset', scores = {}, count = 0}
  return data[key]
end

function C.ZADD(name, ...)
  local key, words = text(name), texts(...)
  if #words < 2 or #words % 2 == 1 then
    unsupported('ZADD with options')
  end
  for i = 1, #words, 2 do
    words[i] = score_of(words[i])
  end
  local found, new = zset(key) or new_zset(key), 0
  for i = 1, #words, 2 do
    new = new + put_member(found, key, words[i + 1], words[i])
  end
  return new
end

local function take_out(found, key, members)
  local gone = 0
  for _, member in ipairs(members) do
    if found.scores[member] then
      found.scores[member], gone = nil, gone + 1
      note('Z', key, member, false)
      if found.order and found.order[1] == member then
        table.remove(found.order, 1)
      else
        found.order = nil
      end
    end
  end
  found.count = found.count - gone
  if found.count == 0 then
    drop(key)
  end
  return gone
end

function C.ZREM(name, ...)
  local key = text(name)
  local found = zset(key)
  return found and take_out(found, key, texts(...)) or 0
end

function C.ZCARD(key)
  local found = zset(key)
  return found and found.count or 0
end

function C.ZSCORE(key, member)
  local found = zset(key)
  local score = found and found.scores[text(member)]
  return score and score_text(score) or false
end

function C.ZRANK(key, name)
  local found, member = zset(key), text(name)
  if found and found.scores[member] then
    for at, other in ipairs(in_order(found)) do
      if other == member then
        return at - 1
      end
    end
  end
  return false
end

local function shown(found, members, scored)
  if not scored then
    return members
  end
  local words = {}
  for i, member in ipairs(members) do
    words[i * 2 - 1], words[i * 2] = member, score_text(found.scores[member])
  end
  return words
end

-- Elements `first` to `last`, counted from 0, below 0 from the end.
local function slice(list, first, last)
  local many, part = #list, {}
  if first < 0 then
    first = math.max(0, first + many)
  end
  if last < 0 then
    last = last + many
  end
  for at = first + 1, math.min(last + 1, many) do
    part[#part + 1] = list[at]
  end
  return part
end

function C.ZRANGE(key, start, stop, ...)
  local scored, reversed, first, last = false, false, integer(start), integer(stop)
  for _, word in ipairs({...}) do
    local option = upper(text(word))
    scored, reversed = scored or option == 'WITHSCORES', reversed or option == 'REV'
    if option ~= 'WITHSCORES' and option ~= 'REV' then
      unsupported('ZRANGE with ' .. option)
    end
  end
  local found = zset(key)
  if not found then
    return {}
  end
  local order = in_order(found)
  if reversed then
    local back = {}
    for at = #order, 1, -1 do
      back[#back + 1] = order[at]
    end
    order = back
  end
  return shown(found, slice(order, first, last), scored)
end

-- An end of a range of scores, and whether it lies outside itself.
local function bound(value)
  local word = text(value)
  local outside = sub(word, 1, 1) == '('
  return score_of(outside and sub(word, 2) or word), outside
end

local function between(key, from, to)
  local least, past = bound(from)
  local most, short = bound(to)
  local found, members = zset(key), {}
  for _, member in ipairs(found and in_order(found) or {}) do
    local score = found.scores[member]
    if (score > least or (score == least and not past)) and (score < most or (score == most and not short)) then
      members[#members + 1] = member
    end
  end
  return found, members
end

-- `LIMIT offset count` of a list.
local function limited(list, offset, count)
  local from, many = integer(offset), integer(count)
  return slice(list, from, many < 0 and -1 or from + many - 1), many ~= 0
end

function C.ZCOUNT(key, from, to)
  local _, members = between(key, from, to)
  return #members
end

function C.ZRANGEBYSCORE(key, from, to, ...)
  local found, members = between(key, from, to)
  local words = texts(...)
  local scored = words[1] and upper(words[1]) == 'WITHSCORES'
  if scored then
    table.remove(words, 1)
  end
  if #words == 3 and upper(words[1]) == 'LIMIT' then
    local part, some = limited(members, words[2], words[3])
    members = some and part or {}
  elseif #words > 0 then
    unsupported('ZRANGEBYSCORE with ' .. words[1])
  end
  return shown(found, members, scored)
end

function C.ZREMRANGEBYSCORE(name, from, to)
  local found, members = between(name, from, to)
  return found and take_out(found, text(name), members) or 0
end
