"""How several learners of one stream come to one Q-table (Dalton, section 4): agents report, a round is sealed and
merged, and everybody gets the answer. A report that comes late counts in the next round.

Begin with ``next_step``: it decides what a replica does about a round, when it seals one included, for the service and
for the simulator. ``round_log`` says which report counts and what becomes of a late one (the store on Redis does the
same in Lua), ``rules`` when a round is complete and so may be sealed, ``dsync`` how often agents report; ``replica``
and ``wake_ups`` are what a replica remembers; ``reduce_round`` and ``merge`` make the answer, ``carryover`` is what it
leaves for the next round.

``agent`` is the learner's side, ``partition_agent`` the same for the tasks of a batch, with ``sync_schedule`` for which
batches report, and ``task_router`` for tasks that go by an online router; ``messages`` is what both sides send.
"""
