-- Tells waiters of another library that the name was given back. The last act: it may fail.
local function publish(channel)
  if how ~= 'spublish' or type(redis.pcall('SPUBLISH', channel, what)) ~= 'number' then
    redis.pcall('PUBLISH', channel, what)
  end
end

if reply[1] == 'R' then
  if how == 'push' then
    redis.pcall('DEL', OTHER)
    redis.pcall('LPUSH', OTHER, '1')
    redis.pcall('PEXPIRE', OTHER, what)
  else
    publish(where)
    -- Of the waiters of an RFairLock only the first asks, on a channel of its own.
    local first = OTHER ~= NAME and redis.pcall('LINDEX', OTHER, 0)
    if type(first) == 'string' then
      publish(where .. ':' .. first)
    end
  end
end
