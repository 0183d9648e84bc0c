"""From a key column to 64-bit hashes that equal Spark's: which types may be keys, how values are cast and hashed.

Begin with ``hashing`` (``hash_keys``); ``types`` says which Spark types are allowed and what two of them have in
common.
"""
