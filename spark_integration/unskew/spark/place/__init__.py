"""How rows get to their partitions: by Spark SQL (``native``, ``repartition``), by tasks that learn (``by_tasks``,
``executor``), by RDD (``rdd``, ``dstream``), and for Spark's own stateful operators (``salting``).
"""
