-- The record for the caller, in the order in which it reads it.

local reply = {
  state, fingerprint, owner, fence, attempts, lease_until, retry_at,
  result, reason, updated_at, expires_at, vanished, excused,
}

