-- Notes a granted lease in its session.
-- keys: session
-- args: token, what, rid
-- returns: {'G', rid} | {'S', rid} (there is no such session)
-- invariant: nothing is noted in a session that is not there, and its expiry stays.
if call('HEXISTS', KEYS[1], 'ttl_ms') == 0 then
  return {'S', RID}
end
call('HSET', KEYS[1], ARGV[1], ARGV[2])
return {'G', RID}
