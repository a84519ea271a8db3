-- What holds a name that is kept closed.
local CLOSED = 'closed@min_hold'

-- Whether a value is not pawlock's: neither a token (`<22 or more letters and digits>@<who>`), nor a name that is kept
-- closed.
local function is_foreign(value)
  if not value or value == CLOSED then
    return 0
  end
  return #(string.match(value, '^([0-9A-Za-z]+)@') or '') < 22 and 1 or 0
end
