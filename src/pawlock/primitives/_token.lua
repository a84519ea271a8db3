-- What stands on the server in place of a token, and can be guessed: the mark of what stays closed. No acquisition has
-- it as its token, so it takes, renews, passes on and ends nothing.
local function is_guessable(word)
  return string.find(word, '^closed[@.]')
end
local GUESSABLE = 'PAWLOCKARG no acquisition has such a token'
