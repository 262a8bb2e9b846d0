-- Arguments: owner, fingerprint, lease, retention in milliseconds. Returns the fence
-- of a first claim. Otherwise the outcome, and then: claimed fence attempts reason
-- vanished excused | duplicate attempts result | given_up attempts reason | not_due,
-- in_progress attempts reason wait | mismatch | a state that is unknown here.

local function version(f) return string.match(f, '^(.-):') or f end

if fingerprint ~= '' and new_fingerprint ~= '' and fingerprint ~= new_fingerprint and version(fingerprint) == version(new_fingerprint) then
  return {'mismatch'}
end

if state == 'completed' then
  return {'duplicate', attempts, result}
elseif state == 'failed' then
  return {'given_up', attempts, reason}
elseif state == 'retryable' and now < retry_at then
  return {'not_due', attempts, reason, retry_at - now}
elseif state == 'processing' and owner == new_owner then
  -- The first answer was lost: neither a new attempt nor a new fence.
elseif state == 'processing' and now < lease_until then
  return {'in_progress', attempts, reason, lease_until - now}
elseif state ~= 'absent' and state ~= 'retryable' and state ~= 'processing' then
  return {state}
else
  if state == 'processing' then vanished = vanished + 1 end
  attempts = attempts + 1
  fence = math.max(fence + 1, now)
end

if new_fingerprint ~= '' then fingerprint = new_fingerprint end
state, owner, result = 'processing', new_owner, ''
lease_until, retry_at, updated_at, expires_at = now + lease, 0, now, now + retention * 1000
local reply = {'claimed', fence, attempts, reason, vanished, excused}
