-- Arguments: owner, fence, lease. Returns whether the lease was held.

if state ~= 'processing' or owner ~= ARGV[at + 1] or fence ~= tonumber(ARGV[at + 2]) then return 0 end
lease_until, updated_at = now + ARGV[at + 3], now
expires_at = math.max(expires_at, lease_until)
local reply = 1
