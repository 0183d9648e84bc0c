"""``unskew whatif``: replays a recorded stream through planners and routers and shows what each would have done.

Decided here: which batches are counted, from which batches a plan is made (``replay``), by which figures policies are
compared (``measure``, ``results``), and what is recommended (``report``). Begin with ``command``, which checks the
options (``options``, ``job``), reads the keys (``key_file``), replays them, and prints a table or JSON.
"""
