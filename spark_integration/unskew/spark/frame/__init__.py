"""What is read from a frame or its query before anything is placed: which columns can be keys and hash alike each time
(``keys``, ``lineage``), how rows are distributed (``histogram``), and what Spark has made of it (``physical``).

``jvm`` is the only module that looks behind pyspark's public API. Begin with ``keys``.
"""
