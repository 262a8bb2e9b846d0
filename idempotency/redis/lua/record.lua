-- The record of the key as a table of strings, as it is now.

local fields = {
  'state', 'fingerprint', 'owner', 'fence', 'attempts', 'lease_until',
  'retry_at', 'result', 'reason', 'updated_at', 'expires_at', 'vanished', 'excused',
}

-- load returns the record, a missing field being false. Where there is none, or
-- it is past its retention, the state is 'absent'; of the latter the fence is
-- left.
local function load()
  local values = redis.call('HMGET', key, unpack(fields))
  local r = {}
  for i, name in ipairs(fields) do r[name] = values[i] end
  if not r.state or now >= tonumber(r.expires_at) then
    local fence = r.fence
    r = {}
    for _, name in ipairs(fields) do r[name] = false end
    r.state, r.fence = 'absent', fence
  end
  return r
end

-- change writes fields, removing those that are false, and lets the key vanish
-- when the record expires.
local function change(changes)
  local set, unset = {}, {}
  for name, value in pairs(changes) do
    if type(value) == 'number' then value = int(value) end
    if value and value ~= '' then
      set[#set + 1], set[#set + 2] = name, value
    else
      unset[#unset + 1] = name
    end
  end
  redis.call('HSET', key, unpack(set))
  if #unset > 0 then redis.call('HDEL', key, unpack(unset)) end
  if changes.expires_at then
    redis.call('PEXPIREAT', key, int(math.ceil(tonumber(changes.expires_at) / 1000)))
  end
end

-- held tells whether the lease is that of the last claim.
local function held(r, owner, fence) return r.owner == owner and r.fence == fence end
