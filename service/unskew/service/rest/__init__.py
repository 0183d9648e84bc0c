"""The service over HTTP: each verb of ``api.calls`` under a path, in JSON or protobuf, and the web page at ``/``.

Decided here: paths, content types, entity tags, what JSON looks like, and how an error becomes a problem (RFC 9457).
Who may ask, which names and sizes are allowed, and what a verb does is decided in ``api.calls``, for gRPC as well.

A path names the stream, with ``/`` in its name written ``%2F``. A request goes through ``middleware`` (who asks, time,
errors) on FastAPI's router to a handler in ``streams``, ``plans``, ``learning``, ``explain``, ``overview`` or ``page``;
it reads its body by ``bodies`` and a model of ``models``, asks ``Calls``, and answers by ``negotiation`` with the
message or with a document that ``encoder`` writes. Begin with ``app``, then ``streams``.

A new path is: a handler in one of these modules with a line in its ``add_to``, models for what it reads and gives, a
method of ``Calls``, its role in ``auth.roles.ROLE_OF``, and lines in ``tests/service/test_access.py`` and
``test_rest.py``. A new module of handlers is named in ``RestApp._add_all``. ``make reference`` writes the pages anew.
"""
