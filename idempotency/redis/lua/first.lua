-- Most claims are a key's first. So claim.lua, which says what the arguments are,
-- begins with this: the record of a first claim is written, unless there is one,
-- which the same command returns.

local owner, fingerprint = ARGV[1], ARGV[2]
local lease_until, expires_at = now + tonumber(ARGV[3]), now + tonumber(ARGV[4])
local value = redis.call('SET', key, struct.pack(layout,
  marker, now, 1, lease_until, 0, now, expires_at, 0, 0,
  10, 'processing', #fingerprint, fingerprint, #owner, owner, 0, '', 0, ''
), 'NX', 'GET', 'PXAT', math.ceil(expires_at / 1000))
if not value then return {'first', int(now)} end

