-- Lists sessions, ordered by id.
-- keys: sessions, order
-- args: prefix ('' for all), after ('' from the first), limit, rid
-- returns: {'L', rid, now_ms, {id, ...}, last (where to continue; '' at the end)}
-- invariant: it writes nothing.
local prefix, after = ARGV[1], ARGV[2]
--@include _clock
local from = after ~= '' and '(' .. after or (prefix ~= '' and '[' .. prefix or '-')
local to = prefix ~= '' and '(' .. prefix .. '\255' or '+'
local listed, live = call('ZRANGEBYLEX', KEYS[2], from, to, 'LIMIT', 0, tonumber(ARGV[3])), {}
for _, id in ipairs(listed) do
  if tonumber(call('ZSCORE', KEYS[1], id) or '0') >= now_ms then
    live[#live + 1] = id
  end
end
return {'L', RID, now_ms, live, listed[#listed] or ''}
