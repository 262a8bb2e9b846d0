-- ARGV: owner, fence, lease. Returns whether the lease was held.

if state ~= 'processing' or owner ~= ARGV[1] or fence ~= tonumber(ARGV[2]) then return 0 end
lease_until, updated_at = now + tonumber(ARGV[3]), now
expires_at = math.max(expires_at, lease_until)
local reply = 1
