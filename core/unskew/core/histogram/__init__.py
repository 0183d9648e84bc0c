"""How many rows each key has: the input of every planner.

``histogram`` is the value (heavy keys one by one, the rest by host), ``sampling`` makes one from counts of a frame,
``history`` combines several batches. Begin with ``histogram``.
"""
