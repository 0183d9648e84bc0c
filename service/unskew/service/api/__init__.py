"""The verbs of the service, the same for gRPC and REST: ``verbs`` lists them, ``calls`` checks the caller's role and
turns messages into values and back, ``problems`` says what went wrong in both forms. A new RPC begins here.
"""
