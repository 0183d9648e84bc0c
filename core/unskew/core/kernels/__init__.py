"""The loops that run once a row, compiled by numba where it is installed and plain Python where it is not.

A module here is the inner loop of a router or learner of the same subject in ``routers`` or ``dalton``, which owns its
arrays and settings; nothing else is decided here. Begin with ``base``, which states the rules for writing a loop.
"""
