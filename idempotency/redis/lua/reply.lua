-- The record for the caller, in the order in which it reads it.

local reply = {
  state, fingerprint, owner, int(fence), int(attempts), int(lease_until), int(retry_at),
  result, reason, int(updated_at), int(expires_at), int(vanished), int(excused),
}

