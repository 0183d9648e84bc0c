"""The Lua of the Redis store: each operation one atomic script with a named outcome (DESIGN, section 6).

Keys of a stream, all under one hash tag ``{prefix:stream}:``

- ``m`` hash: spec, created, inc(arnation), owner, open, merged, opened, arrivals, expires. Without it there is no
  stream.
- ``k`` set: the names of all its other keys, to let them expire together and to delete them.
- ``t`` the incarnation of a deleted stream, kept for a day: the next one's is higher.
- ``b:<kind>`` zset of batches by when they were last reported to; ``h:<kind>:<batch>`` hash: source -> "run parts";
  ``p:<kind>:<batch>`` hash: "part source" -> data.
- ``vs`` zset of plan versions, all of score 0, so in their order; ``v:<version>`` hash; ``w`` hash: purpose -> version.
- ``r:<epoch>`` hash: report -> data, ``i:<epoch>`` hash: report -> arrival, digest, size; ``a`` zset of agents by
  lease; ``q`` hash: agent -> its last report that was taken and its last merged one; ``c`` hash: the last commit.
- ``n:<kind>`` list: entries of the history, each behind its time.

Times are whole microseconds by Redis TIME. A number that may pass 2^53 (session, seq, run, version) is 20 digits of
text, which compare as they should. ``#!lua`` lets Redis refuse a script as a whole, before it has written anything: on
a replica, when memory is full, when too few replicas follow. Those that only read or free memory run when it is full.

``KEYS[1]`` is ``m``; ARGV: time to live in ms, news channel, stream, then what the operation takes.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

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
redis.call('SET', base .. 't', redis.call('HGET', M, 'inc'), 'PX', 86400000)
clear()
publish('stream')
return owner
""",
    "put_part": """
local kind, batch, source, run, part, parts, data, most = unpack(ARGV, 4)
if not alive() then return 'gone' end
local where = kind .. ':' .. batch
local H, P, B = base .. 'h:' .. where, base .. 'p:' .. where, base .. 'b:' .. kind
local field, line = part .. ' ' .. source, redis.call('HGET', H, source)
if line then
  local last, last_parts = string.sub(line, 1, 20), string.sub(line, 22)
  if run < last then return 'older' end
  if run == last and parts ~= last_parts then return 'parts ' .. last_parts end
  if run == last and redis.call('HEXISTS', P, field) == 1 then return 'repeated' end
  if run > last then
    for _, old in ipairs(redis.call('HKEYS', P)) do
      if string.sub(old, string.find(old, ' ', 1, true) + 1) == source then redis.call('HDEL', P, old) end
    end
  end
end
redis.call('HSET', H, source, run .. ' ' .. parts)
redis.call('HSET', P, field, data)
redis.call('ZADD', B, redis.call('HINCRBY', M, 'arrivals', 1), batch)
own(H) own(P) own(B)
while redis.call('ZCARD', B) > tonumber(most) do
  local old = kind .. ':' .. redis.call('ZPOPMIN', B)[1]
  drop(base .. 'h:' .. old)
  drop(base .. 'p:' .. old)
end
return 'stored'
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
    "put_plan": """
local version, digest, data, purpose, after, most, advice, ways = unpack(ARGV, 4)
if not alive() then return 'gone' end
local V, VS, W = base .. 'v:' .. version, base .. 'vs', base .. 'w'
local present = redis.call('HMGET', V, 'digest', 'data', 'purpose', 'advice')
if present[1] == digest and present[2] == data and present[3] == purpose and (present[4] or '') == advice then
  return 'stored'
end
if purpose ~= '' and redis.call('HEXISTS', W, purpose) == 1 then return 'purpose taken' end
local latest = redis.call('ZRANGE', VS, -1, -1)[1] or ''
if latest ~= after or version <= latest then return 'not next' end
if string.sub(version, 1, 20) ~= string.format('%020.0f', redis.call('HGET', M, 'inc')) then return 'not next' end
redis.call('HSET', V, 'digest', digest, 'data', data, 'purpose', purpose, 'advice', advice, 'ways', ways)
if latest ~= '' then redis.call('HDEL', base .. 'v:' .. latest, 'ways') end
redis.call('ZADD', VS, 0, version)
own(V) own(VS)
if purpose ~= '' then
  redis.call('HSET', W, purpose, version)
  own(W)
end
while redis.call('ZCARD', VS) > tonumber(most) do
  local old = base .. 'v:' .. redis.call('ZPOPMIN', VS)[1]
  redis.call('HDEL', W, redis.call('HGET', old, 'purpose') or '')
  drop(old)
end
publish('plan')
return 'stored'
""",
    "plan": """
local version = ARGV[4]
if version == '' then version = redis.call('ZRANGE', base .. 'vs', -1, -1)[1] end
if not version then return false end
local at = redis.call('HMGET', base .. 'v:' .. version, 'digest', 'data', 'purpose', 'advice', 'ways')
if not at[1] then return false end
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
local function take(agent, name, data, digest, lease)
  local field = agent .. ' ' .. name
  local line = redis.call('HGET', Q, agent) or string.rep('0', 80)
  local latest, done = string.sub(line, 1, 40), string.sub(line, 41)
  local here = false
  for epoch = merged + 1, tonumber(open) do
    here = here or redis.call('HEXISTS', base .. 'r:' .. whole(epoch), field) == 1
  end
  if name < latest and name ~= done and not here then return 'older' end
  -- An older report does not renew the lease: it may have been sent before its agent died.
  if name >= latest then redis.call('ZADD', A, 'GT', whole(now + lease), agent) end
  if here then return 'repeated' end
  if name == done then return 'merged' end
  -- One session of an agent counts in a round: a newer one replaces an older one. Within a session nothing is replaced.
  if redis.call('HEXISTS', R, agent .. ' ' .. latest) == 1 then
    for _, old in ipairs(redis.call('HKEYS', R)) do
      if string.sub(old, 1, -42) == agent and string.sub(old, -40, -21) < string.sub(name, 1, 20) then
        redis.call('HDEL', R, old)
        redis.call('HDEL', I, old)
      end
    end
  end
  redis.call('HSET', R, field, data)
  redis.call('HSET', I, field, whole(now) .. ' ' .. digest .. ' ' .. #data)
  redis.call('HSET', Q, agent, name .. done)
  return 'stored'
end
local outcomes, stored = {}, false
for first = 4, #ARGV, 5 do
  local outcome = take(unpack(ARGV, first, first + 4))
  stored = stored or outcome == 'stored'
  outcomes[#outcomes + 1] = outcome
end
if redis.call('EXISTS', A) == 1 then own(A) end
if stored then
  own(R) own(I) own(Q)
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
return {whole(now), at[1], at[2], at[3], at[4], redis.call('HGETALL', base .. 'i:' .. at[2]),
  redis.call('ZRANGE', base .. 'a', 0, -1, 'WITHSCORES'), redis.call('HGETALL', base .. 'q'),
  redis.call('HGET', base .. 'c', 'keep')}
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
local epoch, answer, keep, names, forget = unpack(ARGV, 4, 8)
local first = 9
if not alive() then return 'gone' end
local number, at = tonumber(epoch), redis.call('HMGET', M, 'open', 'merged')
local open, merged = tonumber(at[1]), tonumber(at[2])
local A, C, Q, R = base .. 'a', base .. 'c', base .. 'q', base .. 'r:' .. epoch
-- The very same commit again is merged, too: its sender may not have got the answer.
if number <= merged then
  local last = redis.call('HMGET', C, 'epoch', 'answer', 'keep', 'names')
  if last[1] == epoch and last[2] == answer and last[3] == keep and last[4] == names then return 'merged' end
  return last
end
if number > merged + 1 or number >= open then return 'not sealed' end
-- Exactly the reports that are in it: else the answer is of an earlier state of this Redis.
if redis.call('HLEN', R) ~= #ARGV - first + 1 then return 'not sealed' end
for i = first, #ARGV do
  if redis.call('HEXISTS', R, ARGV[i]) == 0 then return 'not sealed' end
end
redis.call('HSET', C, 'epoch', epoch, 'answer', answer, 'keep', keep, 'names', names)
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
return redis.call('HMGET', base .. 'c', 'epoch', 'answer', 'keep', 'names')
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
}

_REFUSED_WHEN_FULL = {"put_stream", "renew_stream", "put_part", "put_plan", "report", "note", "claim"}


def _script(name: str, body: str) -> Script:
    flags = "" if name in _REFUSED_WHEN_FULL else " flags=allow-oom"
    text = f"#!lua{flags}\n{body}"
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


SCRIPTS = {name: _script(name, _COMMON + body) for name, body in _OF_STREAMS.items()}
SCRIPTS |= {name: _script(name, body) for name, body in _OF_OWNERS.items()}
