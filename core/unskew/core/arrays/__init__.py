"""What numpy arrays need that numpy lacks: frozen values made of arrays, hashes of hashes, exact shares of whole rows.

Everything else in ``core`` may use this package; it uses nothing but ``errors``. Begin with ``frozen``.
"""
