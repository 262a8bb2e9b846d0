-- The completion of a key whose first attempt succeeded, as most do: the quick
-- way to what complete.lua does, which says what the arguments are.

local is = redis.call('HMGET', key, 'state', 'owner', 'fence', 'expires_at', 'reason')
if is[1] == 'processing' and is[2] == ARGV[1] and is[3] == ARGV[2] and now < tonumber(is[4]) and not is[5] then
  local expires_at = now + tonumber(ARGV[3])
  -- An empty field is as none, and one command less.
  local set = {'state', 'completed', 'lease_until', '', 'updated_at', now, 'expires_at', expires_at}
  if ARGV[4] ~= '' then set[9], set[10] = 'result', ARGV[4] end
  redis.call('HSET', key, unpack(set))
  redis.call('PEXPIREAT', key, math.ceil(expires_at / 1000))
  return 1
end

