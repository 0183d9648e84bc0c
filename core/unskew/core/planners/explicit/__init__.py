"""Planners that place listed keys one by one over a tail that is hashed and never moved: Readj, Redist, Scan and Mixed.

They share ``items``, the keys with their loads and places; each algorithm is in the file of its name.
"""
