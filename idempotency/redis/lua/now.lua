-- Begins every script: its key, and the server's time.
--
-- Times are microseconds since 1970. Lua's numbers are doubles: exact below
-- 2^53, which microseconds reach in the year 2255, and durations are bounded by
-- the caller. Fields are strings; int() writes a number without an exponent, as
-- the server itself does with the arguments of a command (up to 17 digits).

local key = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function int(n) return string.format('%.0f', n) end

