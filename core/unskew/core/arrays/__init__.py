"""Helpers for numpy arrays: frozen values made of arrays, ranks and sorted look-ups, mixed hashes, exact shares.

Everything else in ``core`` may use this package; it uses nothing but ``errors``. Begin with ``frozen``.
"""
