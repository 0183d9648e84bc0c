"""The plan: an immutable, versioned table that says where each key's rows go, and the one rule by which rows are
routed.

Nothing is decided here about which key goes where; that is ``planners``. ``plan`` is the value and the rule, ``build``
makes one from a planner's decision, ``check`` says which tables are refused. Begin with ``plan``.
"""
