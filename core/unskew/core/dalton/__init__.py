"""One Dalton learner: its settings, its Q-table, and the compiled loops that learn row by row or batch by batch.

How several learners agree on one Q-table is decided in ``rounds``; the router that learns is ``routers.dalton``. Begin
with ``qtable``.
"""
