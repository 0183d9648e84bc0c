"""Simulation for ``unskew whatif``, the demo and benchmarks: cooperating learners in one process, synthetic key
streams, and Holistic's rule for choosing a router. No job and no service decides by it.
"""
