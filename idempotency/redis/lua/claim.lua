-- ARGV: owner, fingerprint, lease, retention.
-- Returns the outcome, and then: claimed fence attempts reason vanished excused |
-- duplicate attempts result | given_up attempts reason | not_due, in_progress
-- attempts reason wait | mismatch | a state that is unknown here.

local owner, fingerprint = ARGV[1], ARGV[2]
local lease, retention = tonumber(ARGV[3]), tonumber(ARGV[4])

local function version(f) return string.match(f, '^(.-):') or f end

local r = load()
if r.fingerprint and fingerprint ~= '' and r.fingerprint ~= fingerprint
    and version(r.fingerprint) == version(fingerprint) then
  return {'mismatch'}
end

local attempts, reason = tonumber(r.attempts or '0'), r.reason or ''
if r.state == 'completed' then
  return {'duplicate', int(attempts), r.result}
elseif r.state == 'failed' then
  return {'given_up', int(attempts), reason}
elseif r.state == 'retryable' and now < tonumber(r.retry_at) then
  return {'not_due', int(attempts), reason, int(tonumber(r.retry_at) - now)}
elseif r.state == 'processing' and r.owner == owner then
  -- The first answer was lost: neither a new attempt nor a new fence.
elseif r.state == 'processing' and now < tonumber(r.lease_until) then
  return {'in_progress', int(attempts), reason, int(tonumber(r.lease_until) - now)}
elseif r.state ~= 'absent' and r.state ~= 'retryable' and r.state ~= 'processing' then
  return {r.state}
else
  if r.state == 'processing' then r.vanished = int(tonumber(r.vanished or '0') + 1) end
  attempts = attempts + 1
  r.fence = int(math.max(tonumber(r.fence or '0') + 1, now))
end

change({
  state = 'processing', owner = owner, fence = r.fence, attempts = attempts,
  fingerprint = fingerprint ~= '' and fingerprint or r.fingerprint,
  lease_until = now + lease, retry_at = false, result = false, reason = reason,
  updated_at = now, expires_at = now + retention,
  vanished = r.vanished, excused = r.excused,
})
return {'claimed', r.fence, int(attempts), reason, r.vanished, r.excused}
