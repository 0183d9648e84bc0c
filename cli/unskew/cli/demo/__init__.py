"""``unskew demo`` on the terminal, and the report that it writes. The demo itself is ``unskew.spark.demo``."""
