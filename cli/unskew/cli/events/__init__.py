"""``unskew events``: reads Spark's event logs and says which stages wait for their longest task, and what to write.

``log_files`` finds the logs, ``log_lines`` unpacks them, ``messages`` says what is read of each event, and
``application_log`` gathers it; what it means is decided in ``unskew.core.diagnosis``. Begin with ``command``.
"""
