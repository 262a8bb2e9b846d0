-- ARGV: owner, fence, retention, the next state, the attempts to take back,
-- those to excuse, retry after, reason. Returns whether the lease was held.

local r = load()
local state = ARGV[4]
if not held(r, ARGV[1], ARGV[2]) then return 0 end
if r.state == state then return 1 end -- repeated
if r.state ~= 'processing' then return 0 end
change({
  state = state, attempts = tonumber(r.attempts) - tonumber(ARGV[5]),
  excused = ARGV[6] ~= '0' and tonumber(r.excused or '0') + tonumber(ARGV[6]) or r.excused,
  lease_until = false, retry_at = state == 'retryable' and now + tonumber(ARGV[7]),
  reason = ARGV[8], updated_at = now, expires_at = now + tonumber(ARGV[3]),
})
return 1
