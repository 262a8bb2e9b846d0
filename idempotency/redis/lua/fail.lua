-- ARGV: owner, fence, retention, the next state, the attempts to take back,
-- those to excuse, retry after, reason. Returns whether the lease was held.

if owner ~= ARGV[1] or fence ~= tonumber(ARGV[2]) then return 0 end
if state == ARGV[4] then return 1 end -- repeated
if state ~= 'processing' then return 0 end
state, reason = ARGV[4], ARGV[8]
attempts, excused = attempts - tonumber(ARGV[5]), excused + tonumber(ARGV[6])
lease_until, updated_at, expires_at = 0, now, now + tonumber(ARGV[3])
if state == 'retryable' then retry_at = now + tonumber(ARGV[7]) end
local reply = 1
