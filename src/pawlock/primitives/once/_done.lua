-- The record of the result, as a reply to everybody but the holder of the name; nil while there is none.
local DONE = KEYS[#KEYS]
local record = call('HMGET', DONE, 'type', 'value', 'fence', 'at')
local done
if record[1] and call('GET', NAME) ~= ARGV[1] then
  done = {'D', RID, record[1], record[2], tonumber(record[3]), tonumber(record[4])}
end
