"""Names that are meant to be read as something else: as another line, a tag, a path, a colour of the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from tests.attack.victim import VICTIM
from tests.service.faces import report
from tests.service.processes import Process
from unskew.v1 import partitioner_pb2 as pb
from unskew.v1.partitioner_pb2_grpc import PartitionerServiceStub
from unskew.wire import report_to_message

__all__ = ["IDENTITIES", "NAMES", "asked"]

NAMES = {
    "newline": "clicks\n2026-01-01 INFO forged",
    "return": "clicks\r\nx-forged: 1",
    "null": "clicks\x00x",
    "colour": "\x1b[31mclicks\x1b[0m\x07",
    "c1": "clicks\x9b31m",
    "quotes": 'clicks"} 1\nunskew_forged{x="\'',
    "backslash": "clicks\\\\\\n",
    "tag": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "entity": "&lt;script&gt;&#x27;",
    "template": "${alert(1)}{{7*7}}%s%n{0}",
    "proto": "__proto__",
    "constructor": "constructor",
    "up": "../../etc/passwd",
    "dots": "..",
    "encoded": "%2e%2e%2f%00",
    "braces": "{clicks}:m",
    "glob": "*",
    "alike": "сliсks",
    "wide": "ｃｌｉｃｋｓ",
    "right to left": "clicks\u202egnp.exe",
    "joined": "cli\u200dcks",
    "separator": "clicks\u2028forged",
    "surrogate": "\ud83d",
    "astral": "💥" * 50,
    "long": "x" * 100_000,
    "empty": "",
    "space": " ",
}
"""What each stands for, and the name. ``__proto__``, ``constructor`` are names that a stream may have."""

IDENTITIES = tuple(
    NAMES[name] for name in ("newline", "colour", "quotes", "tag", "proto", "up", "braces", "right to left", "astral")
)
"""Of those who may do everything: whoever writes the tokens file is trusted with it, but may have copied a name."""


def asked(service: Process, name: str, token: str = VICTIM) -> Iterator[tuple[str, str]]:
    """The code of each verb that takes this name, over gRPC; a name that is no UTF-8 cannot be sent."""
    metadata = (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(f"127.0.0.1:{service.grpc}") as channel:
        stub = PartitionerServiceStub(channel)
        part, spec = pb.Part(source=name, batch=1, parts=1), pb.StreamSpec(partitions=8)
        agent = report_to_message(report(8, "agent"))
        agent.agent = name
        for verb, request in (
            ("PutStream", pb.PutStreamRequest(stream=name, spec=spec)),
            ("GetStream", pb.GetStreamRequest(stream=name)),
            ("GetPlan", pb.GetPlanRequest(stream=name)),
            ("BuildPlan", pb.BuildPlanRequest(stream=name)),
            ("GetScale", pb.GetScaleRequest(stream=name)),
            ("Explain", pb.ExplainRequest(stream=name, hash=1)),
            ("ReportBatch", pb.ReportBatchRequest(stream="named", part=part)),
            ("Sync", pb.SyncRequest(stream="named", report=agent)),
            ("DeleteStream", pb.DeleteStreamRequest(stream=name)),
        ):
            try:
                getattr(stub, verb)(request, metadata=metadata, timeout=60)
                yield verb, "OK"
            except grpc.RpcError as why:
                yield verb, why.code().name
