"""The store that replicas share: Redis 7 alone, behind Sentinels, or as a cluster.

Begin with ``store``, which implements the ports. ``scripts`` is the Lua that makes each operation atomic, ``replies``
reads what it returns, ``redis_client`` sends it.
"""
