"""The ``unskew`` command. It imports the other roots when a command needs them, and says which extra is missing.

Each command has a module or a folder: ``policies``, ``whatif``, ``events``, ``demo``, ``explain``, ``serve``. Decided
here: how options are read and checked, and what is printed. Begin with ``app``, which lists the commands and their
options.
"""
