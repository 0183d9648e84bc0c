"""How rows get to their partitions: by Spark SQL (``native``, ``repartition``), by tasks that learn (``by_tasks``,
``executor``), by RDD (``rdd``, ``dstream``), and for Spark's own stateful operators (``salting``).
What tasks are bound to before they start is decided in ``pin_maker``. Begin with ``repartition``.
"""
