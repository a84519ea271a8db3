-- Takes parts of the present period; the first part that is taken begins one.
-- keys: quota
-- args: token, n, limit, period_ms, rid
-- returns: {'T', rid, left} | {'S', rid, left, ends_ms (how long the period lasts yet)} | {'C', rid, limit}
-- invariant: in one period no more than the limit is taken, and a request that was seen in it takes nothing more.
local token, n, limit, period_ms = '=' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local version, declared, used, seen = unpack(call('HMGET', NAME, 'v', 'limit', 'used', token))
--@include _wire
if version and tonumber(declared) ~= limit then
  return {'C', RID, tonumber(declared)}
end
local left = limit - (tonumber(used or '0'))
if seen then
  return {'T', RID, left}
end
if n > left then
  return {'S', RID, left, call('PTTL', NAME)}
end
call('HSET', NAME, 'v', '1', 'limit', limit, 'used', limit - left + n, token, n)
if not version then
  call('PEXPIRE', NAME, period_ms)
end
return {'T', RID, left - n}
