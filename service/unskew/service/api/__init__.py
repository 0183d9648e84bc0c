"""What the service can be asked, the same for gRPC and REST. A new RPC begins here.

``verbs`` is the port of the engine: each verb in values of core, without messages and without callers. ``engine``
implements it, and tests put a fake in its place. ``calls`` is what both transports call: it takes a protobuf message
and who sent it, makes every check, writes the audit log, calls the verb, and returns a message. ``problems`` turns
every error into a gRPC status or an HTTP problem document.

A new RPC is: its messages in ``proto/`` (``make stubs``), a method in ``verbs``, ``engine.engine`` and ``calls``, its
role in ``auth.credentials.ROLE_OF``, a line in the table of ``grpc.server``, and for REST what ``rest/__init__`` lists.
"""
