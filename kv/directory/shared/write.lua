-- Applies changes of workers to the records, and appends them to the log as one entry. A change of a worker about
-- which its sender has not seen the last entry is left out.
--
-- KEYS[1] is in front of all keys. ARGV: the epoch, who tells, the most entries, and the changes, as
-- kv/directory/shared/code.go has them. The answer is 0 for another epoch; else a list: the number of the entry, and
-- for each change whether it was applied.
local p = KEYS[1]
if redis.call('GET', p .. 'epoch') ~= ARGV[1] then
  return 0
end
local applied, changes, kept = {}, {}, {}
for i = 4, #ARGV do
  local c = cmsgpack.unpack(ARGV[i])
  local ok = (redis.call('HGET', p .. 'worker:' .. c[1], 'at') or '0') == c[2]
  applied[i - 3] = ok and 1 or 0
  if ok then
    changes[#changes + 1] = c
    kept[#kept + 1] = ARGV[i]
  end
end
if #changes == 0 then
  return {'0', unpack(applied)}
end
-- The entry comes first: if it can't be appended nothing has changed.
local n = string.format('%.0f', (redis.call('GET', p .. 'count') or 0) + 1)
redis.call('XADD', p .. 'log', 'MAXLEN', '~', ARGV[3], n .. '-0', 'by', ARGV[2], 'c', table.concat(kept))
redis.call('SET', p .. 'count', n)
for _, c in ipairs(changes) do
  local id, what, reset, state, places = c[1], c[3], c[4], c[5], c[6]
  local record = p .. 'worker:' .. id
  if what ~= 'told' or reset then
    for k = 0, 15 do
      redis.call('UNLINK', p .. 'chunks:' .. k .. ':' .. id)
    end
  end
  if what ~= 'told' then
    redis.call('UNLINK', record)
    redis.call('SREM', p .. 'workers', id)
  else
    for _, place in ipairs(places) do
      local chunks = p .. 'chunks:' .. place[1] .. ':' .. id
      if place[2] then
        redis.call('UNLINK', chunks)
      end
      if #place[3] > 0 then
        redis.call('SADD', chunks, unpack(place[3]))
      end
      if #place[4] > 0 then
        redis.call('SREM', chunks, unpack(place[4]))
      end
    end
    redis.call('HSET', record, 'at', n, 'by', ARGV[2], 'state', state)
    redis.call('SADD', p .. 'workers', id)
  end
end
return {n, unpack(applied)}
