"""How several learners of one stream come to one Q-table (Dalton, section 4): agents report, a round is sealed and
merged, everybody gets the answer. A report that comes late counts in the next round.

``agent`` is one learner's side, ``partition_agent`` that of a task; ``messages`` is what they send and get.
``round_log`` says which report counts, ``next_step`` what a replica does next, ``merge`` and ``reduce_round`` what the
answer is, ``dsync`` and ``sync_schedule`` how often agents report. Begin with ``next_step``.
"""
