"""Who a caller is and what it may do, for gRPC, REST, documents and metrics alike: ``roles`` says which role a verb
needs, ``credentials`` who has which, ``access`` refuses the others. Begin with ``roles``."""
