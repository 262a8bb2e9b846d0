-- The record, in variables, as the value says that was read. Where there is none,
-- or it is past its retention, the state is 'absent'; of the latter the fence is
-- left.

local mark, fence, attempts, lease_until, retry_at, updated_at, expires_at, vanished, excused,
  state, fingerprint, owner, reason, result
if value then
  if type(value) == 'table' then return value end
  local whole = string.sub(value, 1, #marker) == marker
  if whole then -- an error would end the other keys' calls
    whole, mark, fence, attempts, lease_until, retry_at, updated_at, expires_at, vanished, excused,
      state, fingerprint, owner, reason, result = pcall(struct.unpack, layout, value)
  end
  if not whole then return redis.error_reply('WRONGTYPE The value is not a record of this version') end
end
if not value or now >= expires_at then
  state, fingerprint, owner, reason, result = 'absent', '', '', '', ''
  fence = fence or 0
  attempts, lease_until, retry_at, updated_at, expires_at, vanished, excused = 0, 0, 0, 0, 0, 0, 0
end

