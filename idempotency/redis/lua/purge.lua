-- Arguments: the least age of the last change, and the states that match. Returns
-- whether the record was forgotten.

if state == 'absent' or updated_at + ARGV[at + 1] > now then return 0 end
for i = at + 2, #ARGV do
  if state == ARGV[i] then return redis.call('DEL', key) end
end
return 0
