-- Ends a session, and says what it holds, for the caller to release and take out.
-- keys: session
-- args: rid
-- returns: {'K', rid, {token, what, ...}} | {'S', rid} (there is no such session)
-- invariant: nothing is noted in it any more, and its expiry stays; what is not taken out is listed again if this is
--   sent again.
local held, listed = call('HGETALL', KEYS[1]), {}
if #held == 0 then
  return {'S', RID}
end
for at = 1, #held, 2 do
  if held[at] ~= 'ttl_ms' then
    listed[#listed + 1] = held[at]
    listed[#listed + 1] = held[at + 1]
  end
end
call('HDEL', KEYS[1], 'ttl_ms')
return {'K', RID, listed}
