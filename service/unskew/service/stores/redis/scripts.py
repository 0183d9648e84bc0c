"""The Lua of the Redis store: each operation one atomic script with a named outcome (DESIGN, section 6).

Keys of a stream, all under one hash tag ``{prefix:stream}:``

- ``m`` hash: spec, created, inc(arnation), owner, open, merged, opened, arrivals, expires. Without it there is no
  stream.
- ``k`` set: the names of all its other keys, to let them expire together and to delete them.
- ``t`` the incarnation of a deleted stream, kept for a day: the next one's is higher.
- ``b:<kind>`` zset of batches by when they were last reported to; ``h:<kind>:<batch>`` hash: source -> "run parts";
  ``p:<kind>:<batch>`` hash: "part source" -> data. In ``h`` is also " source" -> when its parts were last replaced, and
  ``u:<kind>`` hash: batch -> its bytes, parts and sources.
- ``vs`` zset of plan versions, all of score 0, so in their order; ``v:<version>`` hash; ``w`` hash: purpose -> version.
- ``r:<epoch>`` hash: report -> data, ``i:<epoch>`` hash: report -> arrival, digest, size; ``s:<epoch>`` bytes of
  its reports; ``a`` zset of agents by lease; ``q`` hash: agent -> its last report that was taken and its last merged
  one; ``c`` hash: the last commit, with the digests of the last rounds (``core.rounds.round_digests``).
- ``n:<kind>`` list: entries of the history, each behind its time.

Times are whole microseconds by Redis TIME. A number that may pass 2^53 (session, seq, run, version) is 20 digits of
text, which compare as they should. ``#!lua`` lets Redis refuse a script as a whole, before it has written anything: on
a replica, when memory is full, when too few replicas follow. Those that only read or free memory run when it is full.

``KEYS[1]`` is ``m``; ARGV: time to live in ms, news channel, stream, then what the operation takes.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from unskew.service.stores.limits import PART_BYTES

__all__ = ["SCRIPTS", "Script"]


class Script(NamedTuple):
    """A script, and the hash by which Redis finds it once it has run it."""

    text: str
    sha: str


_COMMON = """
local M, ttl, channel, stream = KEYS[1], tonumber(ARGV[1]), ARGV[2], ARGV[3]
local base = string.sub(M, 1, -2)
local K = base .. 'k'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local expires
local function whole(number) return string.format('%.0f', number) end
-- Database 0 has the channel that the release before this one uses for all. News of another one are there too, marked.
local shared, db = string.match(channel, '^(.*:news):(%d+)$')
local function send(news)
  redis.call('PUBLISH', channel, news)
  if shared then redis.call('PUBLISH', shared, news .. ' db' .. db) end
end
local function publish(what) send(what .. ' ' .. stream) end
local function publish_rounds(open, merged)
  send('round ' .. stream .. ' ' .. whole(open) .. ' ' .. whole(merged))
end
-- After a write that may have made the key.
local function own(key)
  if redis.call('SADD', K, key) == 1 then
    redis.call('PEXPIREAT', key, expires)
    redis.call('PEXPIREAT', K, expires)
  end
end
local function drop(key)
  redis.call('UNLINK', key)
  redis.call('SREM', K, key)
end
local function clear()
  for _, key in ipairs(redis.call('SMEMBERS', K)) do redis.call('UNLINK', key) end
  redis.call('UNLINK', M, K)
end
-- All keys of a stream expire in the same millisecond; the time is extended only when half of it is gone.
local function extend()
  local at = math.floor(now / 1000)
  if expires and expires - at >= ttl / 2 then return end
  expires = whole(at + ttl)
  redis.call('HSET', M, 'expires', expires)
  redis.call('PEXPIREAT', M, expires)
  redis.call('PEXPIREAT', K, expires)
  for _, key in ipairs(redis.call('SMEMBERS', K)) do redis.call('PEXPIREAT', key, expires) end
end
local function alive()
  expires = tonumber(redis.call('HGET', M, 'expires') or nil)
  if not expires then return false end
  extend()
  expires = whole(expires)
  return true
end
"""

_BEGIN = """
-- A new incarnation of the stream, above ``least`` and above a deleted one.
local function begin(spec, owner, least)
  clear()
  local last = tonumber(redis.call('GET', base .. 't') or '0')
  local inc = whole(math.max(now, least, last + 1))
  redis.call('HSET', M, 'spec', spec, 'created', whole(now), 'inc', inc, 'open', '1', 'merged', '0', 'owner', owner)
  expires = nil
  extend()
  publish('stream')
end
"""

_SIZES = f"""
local function part_size(P, field) return #field + redis.call('HSTRLEN', P, field) + {PART_BYTES} end
-- Bytes, parts and sources of a batch, as it says, or counted: the release before this one does not say it.
local function batch_size(kind, batch)
  local H, P = base .. 'h:' .. kind .. ':' .. batch, base .. 'p:' .. kind .. ':' .. batch
  local line = redis.call('HGET', base .. 'u:' .. kind, batch)
  local bytes, parts, sources = string.match(line or '', '^(%d+) (%d+) (%d+)$')
  if bytes and redis.call('EXISTS', H) == 1 then return {{tonumber(bytes), tonumber(parts), tonumber(sources)}} end
  bytes, parts, sources = 0, 0, 0
  for _, field in ipairs(redis.call('HKEYS', P)) do bytes, parts = bytes + part_size(P, field), parts + 1 end
  for _, source in ipairs(redis.call('HKEYS', H)) do
    if string.sub(source, 1, 1) ~= ' ' then sources = sources + 1 end
  end
  return {{bytes, parts, sources}}
end
local function set_size(kind, batch, bytes, parts, sources)
  local U = base .. 'u:' .. kind
  redis.call('HSET', U, batch, whole(bytes) .. ' ' .. whole(parts) .. ' ' .. whole(sources))
  own(U)
end
local function sizes_of(kind, batches)
  local sizes, total = {{}}, 0
  for _, batch in ipairs(batches) do
    sizes[batch] = batch_size(kind, batch)
    total = total + sizes[batch][1]
  end
  return sizes, total
end
local function plans_size()
  local total, order = 0, redis.call('ZRANGE', base .. 'vs', 0, -1)
  for at, version in ipairs(order) do
    local V = base .. 'v:' .. version
    total = total + redis.call('HSTRLEN', V, 'data')
    if at == #order then total = total + redis.call('HSTRLEN', V, 'ways') end
  end
  return total
end
"""

_OF_STREAMS = {
    "put_stream": f"""{_BEGIN}
local spec, floor, owner = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local created = 0
if alive() then
  if redis.call('HGET', M, 'spec') ~= spec then
    redis.call('HSET', M, 'spec', spec)
    publish('stream')
  end
else
  begin(spec, owner, floor)
  created = 1
end
local at = redis.call('HMGET', M, 'spec', 'created', 'inc', 'owner')
return {{created, at[1], at[2], at[3], at[4]}}
""",
    # The incarnation that replicas remember is lost: begin a new one, once for all of them, unless it was deleted.
    "renew_stream": f"""{_BEGIN}
local spec, owner, lost, floor, recent = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
if alive() then
  local at = redis.call('HMGET', M, 'spec', 'created', 'inc', 'owner')
  if tonumber(at[3]) > lost then return {{0, at[1], at[2], at[3], at[4]}} end
  spec, owner = at[1], at[4] or ''
elseif not recent or tonumber(redis.call('GET', base .. 't') or '0') >= lost then
  return false
end
begin(spec, owner, math.max(floor, lost + 1))
local at = redis.call('HMGET', M, 'spec', 'created', 'inc', 'owner')
return {{1, at[1], at[2], at[3], at[4]}}
""",
    "stream": """
if not alive() then return false end
return redis.call('HMGET', M, 'spec', 'created', 'inc', 'owner')
""",
    "delete_stream": """
-- A stream that this Redis has lost is deleted, too: no replica that remembers it may renew it.
if not alive() then
  local last = tonumber(redis.call('GET', base .. 't') or '0')
  redis.call('SET', base .. 't', whole(math.max(last, now)), 'PX', 86400000)
  return false
end
local owner = redis.call('HGET', M, 'owner') or ''
-- One that is damaged may be deleted, and then put again.
local inc = redis.call('HGET', M, 'inc')
redis.call('SET', base .. 't', tonumber(inc) and inc or whole(now), 'PX', 86400000)
clear()
publish('stream')
return owner
""",
    "put_part": f"""{_SIZES}
local kind, batch, source, run, part, parts, data = unpack(ARGV, 4, 10)
local most, most_bytes, most_parts, most_sources = unpack(ARGV, 11, 14)
local grow = ARGV[15] == '1'
if not alive() then return {{'gone'}} end
local where = kind .. ':' .. batch
local H, P, B = base .. 'h:' .. where, base .. 'p:' .. where, base .. 'b:' .. kind
local field, line = part .. ' ' .. source, redis.call('HGET', H, source)
local replaced, freed = {{}}, 0
if line then
  local last, last_parts = string.sub(line, 1, 20), string.sub(line, 22)
  if run < last then return {{'older'}} end
  if run == last and parts ~= last_parts then return {{'parts', tonumber(last_parts)}} end
  if run == last and redis.call('HEXISTS', P, field) == 1 then return {{'repeated'}} end
  if run > last then
    for _, old in ipairs(redis.call('HKEYS', P)) do
      if string.sub(old, string.find(old, ' ', 1, true) + 1) == source then
        replaced[#replaced + 1] = old
        freed = freed + part_size(P, old)
      end
    end
  end
end
-- Nothing is written before it is certain that there is room: for this batch by itself, and where older ones make it.
local order = redis.call('ZRANGE', B, 0, -1)
local sizes, total = sizes_of(kind, order)
local own_size = sizes[batch] or {{0, 0, 0}}
local bytes = own_size[1] - freed + #field + #data + {PART_BYTES}
local count, sources = own_size[2] - #replaced + 1, own_size[3] + (line and 0 or 1)
if count > tonumber(most_parts) then return {{'over', 'parts', count - 1}} end
if sources > tonumber(most_sources) then return {{'over', 'sources', sources - 1}} end
if bytes > tonumber(most_bytes) then return {{'over', 'bytes', own_size[1]}} end
local left, many, silent = total - own_size[1] + bytes, #order + (sizes[batch] and 0 or 1), {{}}
for _, old in ipairs(order) do
  if many <= tonumber(most) and left <= tonumber(most_bytes) and (grow or left <= total) then break end
  if old ~= batch then
    left, many = left - sizes[old][1], many - 1
    silent[#silent + 1] = old
  end
end
if not grow and left > total then return {{'full'}} end
for _, old in ipairs(replaced) do redis.call('HDEL', P, old) end
redis.call('HSET', H, source, run .. ' ' .. parts)
redis.call('HDEL', H, ' ' .. source)
redis.call('HSET', P, field, data)
redis.call('ZADD', B, redis.call('HINCRBY', M, 'arrivals', 1), batch)
set_size(kind, batch, bytes, count, sources)
own(H) own(P) own(B)
for _, old in ipairs(silent) do
  redis.call('ZREM', B, old)
  redis.call('HDEL', base .. 'u:' .. kind, old)
  drop(base .. 'h:' .. kind .. ':' .. old)
  drop(base .. 'p:' .. kind .. ':' .. old)
end
return {{'stored', left - total, redis.call('HGET', M, 'owner') or ''}}
""",
    # Other data for parts of one source, if none of it was replaced since the mark was read, nor a later run has come.
    "replace_parts": f"""{_SIZES}
local kind, batch, source, run, mark = unpack(ARGV, 4, 8)
if not alive() then return {{'gone'}} end
local H, P = base .. 'h:' .. kind .. ':' .. batch, base .. 'p:' .. kind .. ':' .. batch
local line = redis.call('HGET', H, source)
if not line or string.sub(line, 1, 20) ~= run then return {{'changed'}} end
if (redis.call('HGET', H, ' ' .. source) or '') ~= mark then return {{'changed'}} end
local before = batch_size(kind, batch)
local bytes = before[1]
for at = 9, #ARGV, 3 do
  local field = ARGV[at] .. ' ' .. source
  if redis.call('HEXISTS', P, field) == 0 then return {{'changed'}} end
  local size = redis.call('HSTRLEN', P, field)
  if size ~= tonumber(ARGV[at + 1]) then return {{'changed'}} end
  bytes = bytes - size + #ARGV[at + 2]
end
for at = 9, #ARGV, 3 do redis.call('HSET', P, ARGV[at] .. ' ' .. source, ARGV[at + 2]) end
redis.call('HSET', H, ' ' .. source, redis.call('HINCRBY', M, 'arrivals', 1))
set_size(kind, batch, bytes, before[2], before[3])
return {{'replaced', bytes - before[1], redis.call('HGET', M, 'owner') or ''}}
""",
    "batch_sizes": f"""{_SIZES}
local order, reply = redis.call('ZRANGE', base .. 'b:' .. ARGV[4], 0, -1), {{}}
local sizes = sizes_of(ARGV[4], order)
for at, batch in ipairs(order) do
  reply[2 * at - 1], reply[2 * at] = batch, sizes[batch][1]
end
return reply
""",
    # All bytes of a stream that its owner is charged for.
    "used": f"""{_SIZES}
if redis.call('EXISTS', M) == 0 then return {{0, ''}} end
local total = plans_size()
for at = 4, #ARGV do
  local _, bytes = sizes_of(ARGV[at], redis.call('ZRANGE', base .. 'b:' .. ARGV[at], 0, -1))
  total = total + bytes
end
return {{total, redis.call('HGET', M, 'owner') or ''}}
""",
    # A large hash and its small index: all at once, if it is not too much for one reply; else names and sizes.
    "read_hash": """
local data, index, most = base .. ARGV[4], base .. ARGV[5], tonumber(ARGV[6])
local names, sizes, size = redis.call('HKEYS', data), {}, 0
for number, name in ipairs(names) do
  sizes[number] = redis.call('HSTRLEN', data, name)
  size = size + sizes[number]
end
if size > most then return {redis.call('HGETALL', index), names, sizes} end
return {redis.call('HGETALL', index), redis.call('HGETALL', data)}
""",
    "read_fields": """
return {redis.call('HGETALL', base .. ARGV[5]), redis.call('HMGET', base .. ARGV[4], unpack(ARGV, 6))}
""",
    "batches": """
return redis.call('ZRANGE', base .. 'b:' .. ARGV[4], 0, -1)
""",
    "marks": """
local inc = redis.call('HGET', M, 'inc')
if not inc then return false end
local reply = {inc}
for at = 4, #ARGV do reply[at - 2] = redis.call('ZRANGE', base .. 'b:' .. ARGV[at], 0, -1, 'WITHSCORES') end
return reply
""",
    "put_plan": f"""{_SIZES}
local version, digest, data, purpose, after, most, advice, ways = unpack(ARGV, 4, 11)
local most_bytes, grow = tonumber(ARGV[12]), ARGV[13] == '1'
if not alive() then return {{'gone'}} end
local V, VS, W = base .. 'v:' .. version, base .. 'vs', base .. 'w'
local present = redis.call('HMGET', V, 'digest', 'data', 'purpose', 'advice')
if present[1] == digest and present[2] == data and present[3] == purpose and (present[4] or '') == advice then
  return {{'stored', 0, redis.call('HGET', M, 'owner') or ''}}
end
if purpose ~= '' and redis.call('HEXISTS', W, purpose) == 1 then return {{'purpose taken'}} end
local latest = redis.call('ZRANGE', VS, -1, -1)[1] or ''
if latest ~= after or version <= latest then return {{'not next'}} end
if string.sub(version, 1, 20) ~= string.format('%020.0f', redis.call('HGET', M, 'inc')) then return {{'not next'}} end
-- The oldest plans go where there are too many, where they are too large, and where the owner has no room for more.
local order, total = redis.call('ZRANGE', VS, 0, -1), plans_size()
local left = total + #data + #ways - (latest == '' and 0 or redis.call('HSTRLEN', base .. 'v:' .. latest, 'ways'))
local many, old_plans = #order + 1, {{}}
for _, old in ipairs(order) do
  if many <= tonumber(most) and left <= most_bytes and (grow or left <= total) then break end
  left, many = left - redis.call('HSTRLEN', base .. 'v:' .. old, 'data'), many - 1
  old_plans[#old_plans + 1] = old
end
if not grow and left > total then return {{'full'}} end
redis.call('HSET', V, 'digest', digest, 'data', data, 'purpose', purpose, 'advice', advice, 'ways', ways)
if latest ~= '' then redis.call('HDEL', base .. 'v:' .. latest, 'ways') end
redis.call('ZADD', VS, 0, version)
own(V) own(VS)
if purpose ~= '' then
  redis.call('HSET', W, purpose, version)
  own(W)
end
for _, name in ipairs(old_plans) do
  local old = base .. 'v:' .. name
  redis.call('ZREM', VS, name)
  redis.call('HDEL', W, redis.call('HGET', old, 'purpose') or '')
  drop(old)
end
publish('plan')
return {{'stored', left - total, redis.call('HGET', M, 'owner') or ''}}
""",
    "plan": """
local version = ARGV[4]
if version == '' then version = redis.call('ZRANGE', base .. 'vs', -1, -1)[1] end
if not version then return false end
local at = redis.call('HMGET', base .. 'v:' .. version, 'digest', 'data', 'purpose', 'advice', 'ways')
-- The latest has to be there: without its data the reply is not read as a plan.
if not at[1] then return ARGV[4] == '' and {version} end
return {version, unpack(at)}
""",
    "plan_for": """
local version = redis.call('HGET', base .. 'w', ARGV[4])
if not version then return false end
local at = redis.call('HMGET', base .. 'v:' .. version, 'digest', 'data', 'purpose', 'advice', 'ways')
if not at[1] then return false end
return {version, unpack(at)}
""",
    "report": """
if not alive() then return 'gone' end
local at = redis.call('HMGET', M, 'open', 'merged', 'opened')
local open, merged, opened = at[1], tonumber(at[2]), at[3]
local A, Q, R, I = base .. 'a', base .. 'q', base .. 'r:' .. open, base .. 'i:' .. open
local most, most_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local S = base .. 's:' .. open
local size, added = tonumber(redis.call('GET', S) or '0'), 0
local function take(agent, name, data, digest, lease)
  local field = agent .. ' ' .. name
  local line = redis.call('HGET', Q, agent)
  if not line and redis.call('HLEN', Q) >= most then return 'agents' end
  line = line or string.rep('0', 80)
  local latest, done = string.sub(line, 1, 40), string.sub(line, 41)
  local here = false
  for epoch = merged + 1, tonumber(open) do
    here = here or redis.call('HEXISTS', base .. 'r:' .. whole(epoch), field) == 1
  end
  if name < latest and name ~= done and not here then return 'older' end
  if not here and name ~= done and size + added + #data > most_bytes then return 'full' end
  -- An older report does not renew the lease: it may have been sent before its agent died.
  if name >= latest then redis.call('ZADD', A, 'GT', whole(now + lease), agent) end
  if here then return 'repeated' end
  if name == done then return 'merged' end
  -- One session of an agent counts in a round: a newer one replaces an older one. Within a session nothing is replaced.
  if redis.call('HEXISTS', R, agent .. ' ' .. latest) == 1 then
    for _, old in ipairs(redis.call('HKEYS', R)) do
      if string.sub(old, 1, -42) == agent and string.sub(old, -40, -21) < string.sub(name, 1, 20) then
        added = added - redis.call('HSTRLEN', R, old)
        redis.call('HDEL', R, old)
        redis.call('HDEL', I, old)
      end
    end
  end
  added = added + #data
  redis.call('HSET', R, field, data)
  redis.call('HSET', I, field, whole(now) .. ' ' .. digest .. ' ' .. #data)
  redis.call('HSET', Q, agent, name .. done)
  return 'stored'
end
local outcomes, stored = {}, false
for first = 6, #ARGV, 5 do
  local outcome = take(unpack(ARGV, first, first + 4))
  stored = stored or outcome == 'stored'
  outcomes[#outcomes + 1] = outcome
end
if redis.call('EXISTS', A) == 1 then own(A) end
if stored then
  redis.call('SET', S, whole(size + added), 'KEEPTTL')
  own(R) own(I) own(Q) own(S)
  if not opened then redis.call('HSET', M, 'opened', whole(now)) end
end
return outcomes
""",
    # The names in a sealed round; of each its arrival, digest and size.
    "sealed": """
local epoch = tonumber(ARGV[4])
if epoch >= tonumber(redis.call('HGET', M, 'open') or '0') then return {{}, {}} end
return {redis.call('HKEYS', base .. 'r:' .. ARGV[4]), redis.call('HGETALL', base .. 'i:' .. ARGV[4])}
""",
    "reports": """
return redis.call('HMGET', base .. 'r:' .. ARGV[4], unpack(ARGV, 5))
""",
    "round": """
if not alive() then return false end
local at = redis.call('HMGET', M, 'inc', 'open', 'merged', 'opened')
local last = redis.call('HMGET', base .. 'c', 'keep', 'digests')
return {whole(now), at[1], at[2], at[3], at[4], redis.call('HGETALL', base .. 'i:' .. at[2]),
  redis.call('ZRANGE', base .. 'a', 0, -1, 'WITHSCORES'), redis.call('HGETALL', base .. 'q'), last[1],
  last[2] or at[1]}
""",
    "seal": """
local epoch = tonumber(ARGV[4])
if not alive() then return 'gone' end
local at = redis.call('HMGET', M, 'open', 'merged')
local open, merged = tonumber(at[1]), tonumber(at[2])
-- Its reports may be lost: an empty round would have no answer, and the next one would wait for it.
if epoch == open and redis.call('EXISTS', base .. 'r:' .. ARGV[4]) == 1 then
  open = open + 1
  redis.call('HSET', M, 'open', whole(open))
  redis.call('HDEL', M, 'opened')
  publish_rounds(open, merged)
end
return epoch < open and 1 or 0
""",
    "commit": """
local epoch, answer, keep, names, forget, digests, after = unpack(ARGV, 4, 10)
local first = 11
if not alive() then return 'gone' end
local number, at = tonumber(epoch), redis.call('HMGET', M, 'open', 'merged', 'inc')
local open, merged = tonumber(at[1]), tonumber(at[2])
local A, C, Q, R = base .. 'a', base .. 'c', base .. 'q', base .. 'r:' .. epoch
-- The very same commit again is merged, too: its sender may not have got the answer.
if number <= merged then
  local last = redis.call('HMGET', C, 'epoch', 'answer', 'keep', 'names', 'digests')
  if last[1] == epoch and last[2] == answer and last[3] == keep and last[4] == names then return 'merged' end
  return last
end
-- Merged after the rounds that are here, and not after some that a failover has lost.
if after ~= '' and after ~= (redis.call('HGET', C, 'digests') or at[3]) then return 'not sealed' end
if number > merged + 1 or number >= open then return 'not sealed' end
-- Exactly the reports that are in it: else the answer is of an earlier state of this Redis.
if redis.call('HLEN', R) ~= #ARGV - first + 1 then return 'not sealed' end
for i = first, #ARGV do
  if redis.call('HEXISTS', R, ARGV[i]) == 0 then return 'not sealed' end
end
redis.call('HSET', C, 'epoch', epoch, 'answer', answer, 'keep', keep, 'names', names, 'digests', digests)
own(C)
for i = first, #ARGV do
  local agent, name = string.sub(ARGV[i], 1, -42), string.sub(ARGV[i], -40)
  local line = redis.call('HGET', Q, agent) or (name .. name)
  if string.sub(line, 41) < name then line = string.sub(line, 1, 40) .. name end
  redis.call('HSET', Q, agent, line)
  own(Q)
end
drop(R)
drop(base .. 'i:' .. epoch)
drop(base .. 's:' .. epoch)
redis.call('HSET', M, 'merged', epoch)
local under_way = {}
for later = number + 1, open do
  for _, field in ipairs(redis.call('HKEYS', base .. 'r:' .. whole(later))) do
    under_way[string.sub(field, 1, -42)] = true
  end
end
for _, agent in ipairs(redis.call('ZRANGEBYSCORE', A, '-inf', whole(now - forget))) do
  if not under_way[agent] then
    redis.call('ZREM', A, agent)
    redis.call('HDEL', Q, agent)
  end
end
publish_rounds(open, number)
return 'merged'
""",
    "answer": """
return redis.call('HMGET', base .. 'c', 'epoch', 'answer', 'keep', 'names', 'digests')
""",
    "note": """
local kind, data, keep = unpack(ARGV, 4)
if not alive() then return 'gone' end
local N = base .. 'n:' .. kind
local last = redis.call('LINDEX', N, -1)
if not last or string.sub(last, string.find(last, ' ', 1, true) + 1) ~= data then
  redis.call('RPUSH', N, whole(now) .. ' ' .. data)
end
redis.call('LTRIM', N, '-' .. keep, '-1')
own(N)
return 'stored'
""",
    "notes": """
return redis.call('LRANGE', base .. 'n:' .. ARGV[4], '-' .. ARGV[5], '-1')
""",
}

_OF_OWNERS = {
    # The streams of one owner are a zset beside them, each by when it was claimed (``owner_quotas``).
    "claim": """
local owned, name, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time, claimed = redis.call('TIME'), redis.call('ZSCORE', owned, name)
if not claimed and most and redis.call('ZCARD', owned) >= most then return 'full' end
redis.call('ZADD', owned, string.format('%.0f', time[1] * 1000000 + time[2]), name)
return claimed and 'had' or 'new'
""",
    # Not if it was claimed again since it was read, nor if the claim is so young that the stream may still be created.
    "release": """
local owned, name, claimed, age = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local at = tonumber(redis.call('ZSCORE', owned, name) or nil)
if not at or (claimed and at ~= claimed) or time[1] * 1000000 + time[2] - at < age then return 0 end
return redis.call('ZREM', owned, name)
""",
    # Bytes of one owner: a hash of streams, with their sum under the empty name, and when each was last charged under
    # " name" (``owner_bytes``). What would be more than ``most`` is refused; without ``most`` it is a correction. With
    # ``quiet`` it is one by what was counted: not if the stream was charged within so many seconds, because then a
    # write may be under way that is charged and not counted yet.
    "charge": """
local used, stream, bytes, most = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local total = tonumber(redis.call('HGET', used, '') or '0')
if most and total + bytes > most then return {0, total} end
local now, quiet = tonumber(redis.call('TIME')[1]), tonumber(ARGV[5] or nil)
if quiet and now - tonumber(redis.call('HGET', used, ' ' .. stream) or '0') < quiet then return {0, total} end
local left = math.max(0, tonumber(redis.call('HGET', used, stream) or '0') + bytes)
total = total - tonumber(redis.call('HGET', used, stream) or '0') + left
if left > 0 then redis.call('HSET', used, stream, left, ' ' .. stream, now)
else redis.call('HDEL', used, stream, ' ' .. stream) end
redis.call('HSET', used, '', math.max(0, total))
redis.call('PEXPIRE', used, ARGV[4])
return {1, total}
""",
    "charges": """
return redis.call('HGETALL', KEYS[1])
""",
}

_REFUSED_WHEN_FULL = {"put_stream", "renew_stream", "put_part", "put_plan", "report", "note", "claim"}


def _script(name: str, body: str) -> Script:
    flags = "" if name in _REFUSED_WHEN_FULL else " flags=allow-oom"
    text = f"#!lua{flags}\n{body}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


SCRIPTS = {name: _script(name, _COMMON + body) for name, body in _OF_STREAMS.items()}
SCRIPTS |= {name: _script(name, body) for name, body in _OF_OWNERS.items()}
