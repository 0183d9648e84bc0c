"""How many partitions the next batches should have: Prompt's Algorithm 4 (``autoscale``) and its use in a stream
(``elastic``).

Begin with ``elastic`` for what a running query does, or ``autoscale`` for the paper's rule.
"""
