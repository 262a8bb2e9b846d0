-- Begins every script: the server's time, how a record is kept, and the function
-- that settles a key. A script is run on one key or on several that are alike: a
-- script of its own for each costs the server 2 to 3 µs more.
--
-- Times are microseconds since 1970. Lua's numbers are doubles: exact below
-- 2^53, which microseconds reach in the year 2255, and durations are bounded by
-- the caller.

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

-- A record is one string: a marker, which tells it from other strings and has the
-- layout's version; then fence, attempts, lease_until, retry_at, updated_at,
-- expires_at, vanished and excused as doubles, the same on every server; then
-- state, fingerprint, owner, reason and result, each behind its length, so that
-- they may be any bytes. What there is not is 0 or empty.
local marker, layout = 'idempotency:1:', '<c14 dddddddd Bc0 Bc0 Bc0 I2c0 I4c0'

-- The key's arguments are behind the one at that place.
local function settle(key, at)

