-- ARGV: owner, fence, retention, result. Returns whether the lease was held.

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
