"""Structured Streaming: every micro-batch bound to one plan before its first task starts (DESIGN section 7, pins).

Begin with ``foreach``: what Spark calls for each batch. Its rows are placed by ``plan_placer``, where tasks learn by
``learning_placer``; ``pin_log`` keeps what a batch is bound to beside the query's checkpoint. What the next batch is
bound to is decided in ``unskew.core.freshness.plan_ahead``; ``plan_ahead_thread`` is the thread and queue around it,
``batch_sampling`` and ``batch_times`` bring it facts from Spark, ``batch_reports`` brings plans from the service.
``round_participant`` is the driver's part in rounds, ``settings`` checks what a query is given, and
that a batch is of the query that was meant.
"""
