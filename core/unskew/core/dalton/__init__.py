"""What one Dalton learner knows: its settings, its Q-table, and how it routes a batch of counted keys.

How several learners agree on one Q-table is ``rounds``; the router that learns row by row is ``routers.dalton``. Begin
with ``qtable``.
"""
