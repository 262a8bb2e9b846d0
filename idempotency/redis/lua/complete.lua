-- ARGV: owner, fence, retention, result. Returns whether the lease was held.

local is = redis.call('HMGET', key, 'state', 'owner', 'fence', 'expires_at')
if is[1] == 'processing' and is[2] == ARGV[1] and is[3] == ARGV[2] and now < tonumber(is[4]) then
  -- As most are: the quick way to what follows.
  local expires_at = now + tonumber(ARGV[3])
  redis.call('HDEL', key, 'lease_until', 'reason')
  if ARGV[4] == '' then
    redis.call('HSET', key, 'state', 'completed', 'updated_at', int(now), 'expires_at', int(expires_at))
  else
    redis.call('HSET', key, 'state', 'completed', 'updated_at', int(now), 'expires_at', int(expires_at), 'result', ARGV[4])
  end
  redis.call('PEXPIREAT', key, int(math.ceil(expires_at / 1000)))
  return 1
end

local r = load()
if not held(r, ARGV[1], ARGV[2]) then return 0 end
if r.state == 'completed' then
  -- Repeated. The record stays, but is written: WAIT counts replicas from the
  -- connection's last write on.
  change({state = r.state, expires_at = r.expires_at})
  return 1
end
if r.state ~= 'processing' then return 0 end
change({
  state = 'completed', lease_until = false, reason = false, result = ARGV[4],
  updated_at = now, expires_at = now + tonumber(ARGV[3]),
})
return 1
