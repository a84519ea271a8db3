-- Text of numbers, and keys that only live longer.
local WIRE, SLACK_MS, CHUNK = '1', 10000, 1000

-- Lua would write large numbers as 1.7e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- Raises the life of a key; it never falls. The slack is far more than the clock can move between TIME and PTTL.
local function outlive(key, expiry_ms)
  if call('PTTL', key) < expiry_ms - now_ms then
    call('PEXPIREAT', key, digits(expiry_ms + SLACK_MS))
  end
end
