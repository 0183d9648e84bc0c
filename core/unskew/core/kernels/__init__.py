"""The loops that run once a row, compiled by numba where it is installed and plain Python where it is not.

Nothing is decided here that a router or learner does not decide: a module here is the inner loop of the module of the
same subject in ``routers`` or ``dalton``. Begin with ``base``, which states the rules for writing one.
"""
