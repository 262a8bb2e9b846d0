-- The first claim of a key, as most are: the quick way to what claim.lua does,
-- which says what the arguments are. The rest of that script comes behind, and is
-- not even set up.

local known = redis.call('HMGET', key, 'state', 'fence')
if not known[1] and not known[2] then
  local moment, expires_at = int(now), now + tonumber(ARGV[4])
  local set = {
    'state', 'processing', 'owner', ARGV[1], 'fence', moment, 'attempts', '1', 'lease_until', now + tonumber(ARGV[3]),
    'updated_at', moment, 'expires_at', expires_at,
  }
  if ARGV[2] ~= '' then set[15], set[16] = 'fingerprint', ARGV[2] end
  redis.call('HSET', key, unpack(set))
  redis.call('PEXPIREAT', key, math.ceil(expires_at / 1000))
  return {'claimed', moment, '1', '', '0', '0'}
end

