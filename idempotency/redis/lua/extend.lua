-- ARGV: owner, fence, lease. Returns whether the lease was held.

local r = load()
if r.state ~= 'processing' or not held(r, ARGV[1], ARGV[2]) then return 0 end
local lease_until = now + tonumber(ARGV[3])
change({
  lease_until = lease_until, updated_at = now,
  expires_at = math.max(tonumber(r.expires_at), lease_until),
})
return 1
