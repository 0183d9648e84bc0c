"""Consistent Grouping's signals: when a worker says that it is busy, idle or fine. ``planners.cg`` acts on them."""
