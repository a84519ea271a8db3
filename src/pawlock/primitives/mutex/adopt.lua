-- Replaces the token of a detached lease by a new one: a detached lease can be adopted once.
-- keys: name, fence, queue, tickets, dead (of the new token)
-- args: token (the new one), old, ttl_ms, fence_ttl_ms, rid
-- returns: {'H', rid, cur, pttl_ms, now_ms} | {'U', rid, present} | {'X', rid}
-- invariant: only the holder's token is replaced, and the one call that replaces it sets the expiry at its owner's word,
--   so a resent request gets the same reply and lowers nothing, and a late copy finds nothing to replace, or its own token
--   dead.
local token, old, ttl_ms, DEAD = ARGV[1], ARGV[2], tonumber(ARGV[3]), KEYS[5]
--@include _token
if is_guessable(token) or is_guessable(old) then
  return redis.error_reply(GUESSABLE)
end
local value, left = call('GET', NAME), call('PTTL', NAME)
--@include _clock
--@include _fence
--@include _queue
local fence, refusal = read_fence()
if refusal then
  return refusal
end
if call('EXISTS', DEAD) == 1 then
  return {'X', RID}
end
if not value then
  local found = plan()
  go_on()
  pump(found, fence)
  remove(found.drop)
  announce()
end
if value ~= old and value ~= token then
  return {'U', RID, present(value)}
end
left = value == old and ttl_ms or math.max(left, ttl_ms)
go_on()
call('SET', NAME, token, 'PXAT', digits(now_ms + left))
keep_fence(fence, now_ms + left)
return {'H', RID, present_fence(fence), left, now_ms}
