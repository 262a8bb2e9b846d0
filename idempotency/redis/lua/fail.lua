-- Arguments: owner, fence, retention in milliseconds, the next state, the attempts to
-- take back, those to excuse, retry after, reason. Returns whether the lease was held.

if owner ~= ARGV[at + 1] or fence ~= tonumber(ARGV[at + 2]) then return 0 end
if state == ARGV[at + 4] then return 1 end -- repeated
if state ~= 'processing' then return 0 end
state, reason = ARGV[at + 4], ARGV[at + 8]
attempts, excused = attempts - ARGV[at + 5], excused + ARGV[at + 6]
lease_until, updated_at, expires_at = 0, now, now + ARGV[at + 3] * 1000
if state == 'retryable' then retry_at = now + ARGV[at + 7] end
local reply = 1
