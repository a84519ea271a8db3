-- Ends a session, and says what it held, for the caller to release.
-- keys: session
-- args: rid
-- returns: {'K', rid, {token, what, ...}} | {'S', rid} (there is no such session)
-- invariant: what is noted of other sessions is not touched.
local held, listed = call('HGETALL', KEYS[1]), {}
for at = 1, #held, 2 do
  if held[at] ~= 'ttl_ms' then
    listed[#listed + 1] = held[at]
    listed[#listed + 1] = held[at + 1]
  end
end
if #held == 0 then
  return {'S', RID}
end
call('DEL', KEYS[1])
return {'K', RID, listed}
