"""What only a figure of a paper needs: not in the wheel and not reached by any product path.

Each module has its tests in ``tests/papers`` and its benchmark in ``benchmarks``.
"""
