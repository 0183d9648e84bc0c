"""The store that replicas share: Redis 7 alone, behind Sentinels, or as a cluster.

``store`` keeps the promises of the ports, ``scripts`` is the Lua that makes each operation atomic, ``redis_client``
sends it.
"""
