-- Replaces the token of a detached lease by a new one: a detached lease can be adopted once.
-- keys: name, fence, queue, tickets, dead (of the new token)
-- args: token (the new one), old, ttl_ms, fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_ms} | {'U', rid, present} | {'X', rid}
-- invariant: only the holder's token is replaced, and the one call that replaces it sets the expiry at its owner's word,
--   so a resent request gets the same reply and lowers nothing, and a late copy finds nothing to replace, or its own token
--   dead.
local token, old, ttl_ms, DEAD = ARGV[1], ARGV[2], tonumber(ARGV[3]), KEYS[5]
--@include _token
local value, left = call('GET', NAME), call('PTTL', NAME)
--@include _clock
--@include _fence
--@include _queue
if call('EXISTS', DEAD) == 1 then
  return {'X', RID}
end
if not value then
  local found = plan()
  go_on()
  pump(found)
  remove(found.drop)
  announce()
end
-- A name that is kept closed is nobody's to give away.
if value ~= token and (value ~= old or old == CLOSED) then
  return {'U', RID, present(value)}
end
left = value == old and ttl_ms or math.max(left, ttl_ms)
go_on()
call('SET', NAME, token, 'PXAT', digits(now_ms + left))
keep_fence(now_ms + left)
return {'H', RID, present_fence(), left, now_ms}
