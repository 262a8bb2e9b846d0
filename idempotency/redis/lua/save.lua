
-- Ends the scripts that write: the record, and the reply. The server forgets the
-- key when the record expires, which is always ahead: record.lua leaves none that
-- has, and durations are positive.

redis.call('SET', key, struct.pack(layout,
  marker, fence, attempts, lease_until, retry_at, updated_at, expires_at, vanished, excused,
  #state, state, #fingerprint, fingerprint, #owner, owner, #reason, reason, #result, result
), 'PXAT', math.ceil(expires_at / 1000))
return reply
