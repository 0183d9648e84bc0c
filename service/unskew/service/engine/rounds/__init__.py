"""The rounds of cooperative learning on this replica. Begin with ``rounds``, which is what the verbs call;
``round_driver`` does at the store what ``core.rounds.next_step`` decides, and ``reducer`` makes the bytes of an answer
from those of the reports.
"""
