-- The only reading of the clock in a run: some servers let it move within a script, some freeze it. A script that
-- compares a key's PTTL with it reads that PTTL before: the sum is then never below the key's true expiry.
-- No function: a short way through a script would pay for building it.
if not now_us then
  local time = call('TIME')
  now_us = time[1] * 1000000 + time[2]
  now_ms = (now_us - now_us % 1000) / 1000
end
