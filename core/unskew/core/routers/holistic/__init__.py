"""Holistic's routers, which watch how many distinct keys each worker holds (``algorithms``: CM, AM and cAM, LM), and
``sets``, the memory of which worker holds which key.
"""
