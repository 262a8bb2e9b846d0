-- Arguments: owner, fence, retention in milliseconds, result. Returns whether the
-- lease was held.

if owner ~= ARGV[at + 1] or fence ~= tonumber(ARGV[at + 2]) then return 0 end
if state == 'processing' then
  state, result, reason = 'completed', ARGV[at + 4], ''
  lease_until, updated_at, expires_at = 0, now, now + ARGV[at + 3] * 1000
elseif state ~= 'completed' then
  return 0
end
-- Repeated, the record stays, but is written: WAIT counts replicas from the
-- connection's last write on.
local reply = 1
