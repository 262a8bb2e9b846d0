-- Returns the record as it was before.

if state == 'absent' or state == 'completed' then return reply end
state, owner, attempts, vanished, excused = 'retryable', '', 0, 0, 0
lease_until, retry_at, updated_at = 0, now, now
