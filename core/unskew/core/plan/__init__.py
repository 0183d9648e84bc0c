"""The plan: an immutable, versioned table that says where each key's rows go, and the one rule by which rows are
routed.

Nothing is decided here about which key goes where; that is ``planners``. ``plan`` is the value and the rule, ``build``
makes one from a planner's decision, ``check`` says which tables are refused. ``hot_keys`` has the keys with a route of
their own and how a row of a split one is routed, ``slots`` the shares that it is split into; ``lookup`` finds a hash in
a table. Begin with ``plan``.
"""
