-- What stands on the server in place of a token, and can be guessed: the mark of what stays closed. No acquisition has
-- it as its token, so it takes, renews, passes on and ends nothing.
if string.find(ARGV[1], '^closed[@.]') then
  return redis.error_reply('PAWLOCKARG no acquisition has such a token')
end
