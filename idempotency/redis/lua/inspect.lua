-- Returns the record's fields, in their order.

local r, values = load(), {}
for i, name in ipairs(fields) do values[i] = r[name] end
return values
