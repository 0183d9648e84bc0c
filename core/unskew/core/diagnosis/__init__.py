"""What a stage of a past Spark job lost because it waited for its longest task, why, and whether unskew can help.

Decided here from measured task times and Spark's plan, without Spark: ``lost_time`` compares the tasks with even ones,
``cause`` says what made them unlike, ``spark_operator`` finds the operator and its key in Spark's plan, ``remedy``
writes the line. Begin with ``findings``, which puts them together. Who reads the event log is ``unskew.cli.events``.
"""
