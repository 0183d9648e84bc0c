"""``unskew demo``: shows the demo of ``unskew.spark.demo`` on the terminal (``screen``) and writes an HTML report of it
(``report``, with the texts of ``page_template`` and the pictures of ``charts``). Begin with ``command``.
"""
