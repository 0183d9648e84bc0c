"""What the service can be asked, the same for gRPC and REST. A new RPC begins here.

``verbs`` is the port of the engine: each verb in values of core, without messages and without callers. ``engine``
implements it, and tests put a fake in its place. ``calls`` is what both transports call: it takes a protobuf message
and who sent it, makes every check, writes the audit log, calls the verb, and returns a message. ``problems`` turns
every error into a gRPC status or an HTTP problem document.

A new RPC is: its messages in ``proto/unskew/v1/partitioner.proto`` (``make stubs``); a method in ``verbs``,
``engine.engine`` and ``calls``; its role in ``auth.roles.ROLE_OF``; a line in the table of ``grpc.server``; a handler,
with models, in a module of ``rest``; a method of ``client.client`` with its value in ``client.results``; a module of
``unskew.wire`` where messages carry a new value of core's. Tests have ``FakeVerbs`` in ``tests/service/faces.py``.
"""
