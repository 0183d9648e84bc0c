"""The verbs over placed rows: ``group_apply``, ``aggregate``, ``join``, and the advice on them.

Each operator checks everything before any job runs, then builds the frame. Begin with ``groups``, the smallest.
"""
