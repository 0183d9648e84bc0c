"""``unskew whatif``: replays a recorded stream through planners and routers and shows what each would have done.

``command`` checks the options and runs it, ``replay`` does the work, ``show`` prints it.
"""
