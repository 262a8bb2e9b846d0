-- Most claims are a key's first. So claim.lua, which says what the arguments are,
-- begins with this: the record of a first claim is written, unless there is one,
-- which the same command returns.

local new_owner, new_fingerprint, lease, retention = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
local value = redis.pcall('SET', key, struct.pack(layout,
  marker, now, 1, now + lease, 0, now, now + retention * 1000, 0, 0,
  10, 'processing', #new_fingerprint, new_fingerprint, #new_owner, new_owner, 0, '', 0, ''
), 'NX', 'GET', 'PX', retention)
if not value then return now end

