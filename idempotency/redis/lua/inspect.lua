-- Returns the record.

return reply
