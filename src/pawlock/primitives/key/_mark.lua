-- The record of the fences of a key that is shared with other programs, to the scripts as that of an ordinary name.
-- Its field `v` says how the holders of the name are stored, so that no client stores one in another way for a waiter that
-- does not know it: MARK is the prelude's own, OTHER is changed where nobody waits, since a holder that is stored in
-- another way stops a script. Every other one is refused.
local marked

local function read_record(...)
  local found = redis.call('HMGET', FENCE, ...)
  for at, field in ipairs({...}) do
    if field == 'v' then
      marked = found[at] == MARK
      if marked then
        found[at] = '1'
      elseif found[at] == OTHER then
        found[at] = redis.call('ZCARD', QUEUE) > 0 and CLASH or '1'
      end
--@redisson     elseif field == 'last' and FENCED then
--@redisson       local last = redis.call('GET', COUNTER)
--@redisson       if last and not (string.find(last, '^%d+$') and #last < 17) then
--@redisson         error('WRONGTYPE ' .. COUNTER .. ' is no counter of RFencedLock', 0)
--@redisson       end
--@redisson       if last and last - (found[at] or 0) > 0 then
--@redisson         found[at] = last
--@redisson       end
    end
  end
  return found
end

local function write_record(...)
  local words, names_mark = {...}, false
  for at = 1, #words, 2 do
    if words[at] == 'v' then
      words[at + 1], names_mark = MARK, true
    end
  end
  if words[1] == 'last' and not marked and not names_mark then
    words[#words + 1], words[#words + 2] = 'v', MARK
  end
  local reply = redis.call('HSET', FENCE, unpack(words))
  if words[1] == 'last' then
    marked = true
--@redisson     if FENCED then
--@redisson       redis.call('SET', COUNTER, words[2], 'KEEPTTL')
--@redisson     end
  end
  return reply
end

-- Who waits has the record marked, so that no client of another wire is granted the name in between.
local function mark()
  marked = true
  redis.call('HSET', FENCE, 'v', MARK)
  if redis.call('PTTL', FENCE) < 0 then
    redis.call('PEXPIREAT', FENCE, string.format('%.0f', now_ms + math.max(ARGV[#ARGV - 1], 3600000)))
  end
end
