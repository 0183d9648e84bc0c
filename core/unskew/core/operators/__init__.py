"""What one Spark operator needs decided: groups, joins, aggregates, keyed state, and whether a plan pays at all.

Each module takes histograms and gives a plan for its operator, or an answer about it. Begin with ``advice`` for "should
this job use a plan", or with the module of the operator.
"""
