"""Holistic's routers, which watch how many distinct keys each worker holds: CM, AM and cAM, LM.

They share ``sets``, the memory of which worker holds which key; each algorithm is in the file of its name.
"""
