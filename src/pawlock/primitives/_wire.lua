-- A name of another wire version is left alone. `version`: what its record says.
if version and version ~= '1' then
  return redis.error_reply('PAWLOCKWIRE this name is used by pawlock wire version ' .. version)
end
