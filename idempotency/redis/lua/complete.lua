-- ARGV: owner, fence, retention, result. Returns whether the lease was held.

if owner ~= ARGV[1] or fence ~= tonumber(ARGV[2]) then return 0 end
if state == 'processing' then
  state, result, reason = 'completed', ARGV[4], ''
  lease_until, updated_at, expires_at = 0, now, now + tonumber(ARGV[3])
elseif state ~= 'completed' then
  return 0
end
-- Repeated, the record stays, but is written: WAIT counts replicas from the
-- connection's last write on.
local reply = 1
