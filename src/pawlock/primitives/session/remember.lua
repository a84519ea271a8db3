-- Records grants of one name, and how they ended, in its history. A row of fence 0 is about the grant that any client
-- recorded with its tag, if there is one. The start of a grant is kept.
-- keys: history
-- args: limit, life_ms, rows (a line for each grant: fence granted_ago_ms ended_ago_ms or '-' how kind tag or '-' who), rid
-- returns: {'N', rid, now_ms}
-- invariant: there is one entry for each fence and tag (which distinguishes several holds of one grant), and only the
--   newest `limit` are kept; an entry is only replaced by one that knows more: how it ended, or that it was lost after
--   all. So a late copy changes nothing.
local HISTORY, limit, life_ms = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local function weight(how)
  return how == 'held' and 0 or how == 'released' and 1 or 2
end
call('ZCARD', HISTORY)
local left = call('PTTL', HISTORY)
--@include _clock
local function ago(age)
  return age == '-' and '-' or string.format('%.0f', now_ms - age)
end
for fence, granted, ended, how, kind, tag, who in
  string.gmatch(ARGV[3], '(%d+) (%d+) (%S+) (%S+) (%S+) (%S+) ([^\n]*)\n') do
  local before, known
  local since, blind = ago(granted), fence == '0'
  for _, entry in ipairs(call('ZRANGEBYSCORE', HISTORY, fence, blind and '+inf' or fence)) do
    local of, began, noted, its = string.match(entry, '^(%d+) (%d+) %S+ (%S+) %S+ (%S+) ')
    if its == tag then
      before, known = entry, weight(noted)
      if blind then
        fence, since = of, began
      end
    end
  end
  if known and known < weight(how) or not known and not blind then
    -- Before the other goes: a key that loses its last member is gone.
    call('ZADD', HISTORY, fence, table.concat({fence, since, ago(ended), how, kind, tag, who}, ' '))
    if before then
      call('ZREM', HISTORY, before)
    end
  end
end
if left < life_ms then
  call('PEXPIREAT', HISTORY, string.format('%.0f', now_ms + life_ms))
end
local surplus = call('ZCARD', HISTORY) - limit
if surplus > 0 then
  call('ZREM', HISTORY, unpack(call('ZRANGE', HISTORY, 0, surplus - 1)))
end
return {'N', RID, now_ms}
