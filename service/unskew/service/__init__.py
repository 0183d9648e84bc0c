"""The partitioning service. What is decided where:

- ``api``: what it can be asked, and every check of a call. **A new RPC begins here.**
- ``auth``: who a caller is (``credentials``), which role a verb needs (``roles``), and whether the caller may;
- ``grpc``, ``rest``: the same verbs over gRPC and over HTTP with JSON; the web page;
- ``engine``: what each verb does: streams, reports, plans, rounds of learning, watches, advice;
- ``stores``: what outlives a process. **A new store operation begins in** ``stores.ports``.
- ``events``: what has happened, and its observers. **A new metric is in** ``events.metrics``.
- ``app``: the process: settings, ports, logs, TLS.

Here: ``errors``, whose call this is (``caller``) and whose turn (``places``), and helpers of no folder
(``concurrency``, ``lru_cache``).
"""
