-- Returns the record's fields as they were before, in their order.

local r, values = load(), {}
for i, name in ipairs(fields) do values[i] = r[name] end
if r.state ~= 'absent' and r.state ~= 'completed' then
  change({
    state = 'retryable', owner = false, attempts = 0, vanished = false, excused = false,
    lease_until = false, retry_at = now, updated_at = now,
  })
end
return values
