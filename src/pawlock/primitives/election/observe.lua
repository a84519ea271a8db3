-- Returns the leader, and registers the caller to be woken when the leader changes.
-- keys: name, fence, observers
-- args: token, ticket_ttl_ms (0: only ask), channel, former (the channel that it was registered with before, or ''),
--   max_observers, rid
-- returns: {'I', rid, leader_public or '', pttl_ms, fence} | {'F', rid, observers}
-- invariant: reading and registering are one run, so no change is missed between the reply and the first message; of a
--   token it shows only what follows the secret part.
local token, ticket_ttl_ms, channel, former = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local max_observers, OBSERVERS = tonumber(ARGV[5]), KEYS[3]
--@include _gate
--@include _clock
local leader, left_ms = call('GET', NAME), call('PTTL', NAME)
local version, fence = unpack(call('HMGET', FENCE, 'v', 'cur'))
--@include _wire
call('ZCARD', OBSERVERS)
-- Who observes already goes on on a server without memory; who comes anew is refused.
if ticket_ttl_ms > 0 and noted_until(OBSERVERS, token, channel) + noted_until(OBSERVERS, token, former) > 0 then
  call('ZREM', OBSERVERS, '')
end
if ticket_ttl_ms > 0 and not note(OBSERVERS, token, channel, former, now_ms + ticket_ttl_ms, max_observers) then
  return {'F', RID, call('ZCARD', OBSERVERS)}
end
return {'I', RID, leader and string.match(leader, '@(.*)$') or '', left_ms, tonumber(fence or '0')}
