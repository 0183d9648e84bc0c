"""What is read from a frame or its query before anything is placed: key columns, lineage, physical plan, histogram.

``jvm`` is the only module that looks behind pyspark's public API. Begin with ``keys``.
"""
