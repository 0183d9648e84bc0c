"""How several learners of one stream come to one Q-table (Dalton, section 4): agents report, a round is sealed and
merged, everybody gets the answer.

``agent`` is one learner's side and ``reducer`` the other; ``messages`` is what they say to each other, ``merge`` the
arithmetic, ``rules`` when a round is complete, ``dsync`` how often agents report.
"""
