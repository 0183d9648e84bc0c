"""The fifteen figures of reliability, each taken from the code that ships: service processes, Redis, Spark.

``figures`` is the table: which figure is taken by which function. ``record`` keeps what was measured in
``docs/reliability.json`` and writes the table of ``docs/reliability.md`` from it. Begin at ``__main__``.
"""
