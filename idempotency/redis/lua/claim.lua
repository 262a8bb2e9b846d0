-- ARGV: owner, fingerprint, lease, retention.
-- Returns the outcome, and then: first fence | claimed fence attempts reason vanished
-- excused | duplicate attempts result | given_up attempts reason | not_due, in_progress
-- attempts reason wait | mismatch | a state that is unknown here.

local function version(f) return string.match(f, '^(.-):') or f end

if fingerprint ~= '' and ARGV[2] ~= '' and fingerprint ~= ARGV[2] and version(fingerprint) == version(ARGV[2]) then
  return {'mismatch'}
end

if state == 'completed' then
  return {'duplicate', int(attempts), result}
elseif state == 'failed' then
  return {'given_up', int(attempts), reason}
elseif state == 'retryable' and now < retry_at then
  return {'not_due', int(attempts), reason, int(retry_at - now)}
elseif state == 'processing' and owner == ARGV[1] then
  -- The first answer was lost: neither a new attempt nor a new fence.
elseif state == 'processing' and now < lease_until then
  return {'in_progress', int(attempts), reason, int(lease_until - now)}
elseif state ~= 'absent' and state ~= 'retryable' and state ~= 'processing' then
  return {state}
else
  if state == 'processing' then vanished = vanished + 1 end
  attempts = attempts + 1
  fence = math.max(fence + 1, now)
end

if ARGV[2] ~= '' then fingerprint = ARGV[2] end
state, owner, result = 'processing', ARGV[1], ''
lease_until, retry_at, updated_at, expires_at = now + tonumber(ARGV[3]), 0, now, now + tonumber(ARGV[4])
local reply = {'claimed', int(fence), int(attempts), reason, int(vanished), int(excused)}
