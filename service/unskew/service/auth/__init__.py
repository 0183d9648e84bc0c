"""Who a caller is and what it may do, for gRPC, REST, documents and metrics alike. Begin with ``access``."""
