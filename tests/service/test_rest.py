"""REST: the same verbs in JSON and protobuf, problems everywhere, entity tags, the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.faces import FakeVerbs, Served, histogram, report, served, web
from unskew.core import hash_keys
from unskew.core.freshness.way_scores import WayChoice
from unskew.core.stream_spec import Part, StreamSpec
from unskew.service.errors import ConflictError, LimitError, ServiceError, UnavailableError
from unskew.service.rest import models
from unskew.service.rest.models.base import packed
from unskew.service.rest.overview import OverviewPage, StreamOverview
from unskew.v1 import partitioner_pb2 as pb
from unskew.wire import histograms, plan_from_bytes, round_messages
from unskew.wire.ways import choice_from_message

STREAM = "eu/clicks"
OWN = {"x-unskew-request": "1"}  # in place of a content type: no page of another site can send it
PATH = "/v1/streams/eu%2Fclicks"
PROTOBUF = "application/x-protobuf"
PART = {"source": "job/query", "batch": 7}


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    with served(FakeVerbs()) as running:
        yield running


@pytest.fixture
def verbs(service: Served) -> FakeVerbs:
    """The verbs, with one stream and nothing asked yet."""
    verbs: FakeVerbs = service.verbs
    verbs.__dict__.update(FakeVerbs(streams={STREAM: StreamSpec(4, key_types=("string",))}).__dict__)
    return verbs


@pytest.fixture
def client(service: Served, verbs: FakeVerbs) -> Iterator[httpx.Client]:
    with web(service) as opened:
        yield opened


def problem(answer: httpx.Response, status: int, *fields: str) -> dict[str, Any]:
    """The problem document of an answer, checked for what RFC 9457 and we ask."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    document = answer.json()
    found = models.Problem.model_validate(document)
    assert found.status == status
    assert [error.field for error in found.errors] == list(fields)
    assert found.type.startswith("urn:unskew:problem:")
    assert "Traceback" not in answer.text
    return dict(document)


# -- streams ------------------------------------------------------------------------------------------------


def test_a_stream_lives_from_put_to_delete(client: httpx.Client, verbs: FakeVerbs) -> None:
    """201, then 200; listed in pages; 204, then 404."""
    spec = {"partitions": 8, "policy": "kip", "parameters": {"slack": 0.25}, "weights": [1] * 8, "key_types": ["int"]}
    first = client.put("/v1/streams/a:b", json=spec)
    assert first.status_code == 201
    assert {name: first.json()["spec"][name] for name in spec} == spec
    assert client.put("/v1/streams/a:b", json=spec).status_code == 200
    assert verbs.streams["a:b"].parameters == {"slack": 0.25}
    page = client.get("/v1/streams", params={"limit": 1}).json()
    assert ([one["name"] for one in page["streams"]], page["next"]) == (["a:b"], "a:b")
    assert client.get("/v1/streams", params={"after": "a:b"}).json()["streams"][0]["name"] == STREAM
    found = client.get("/v1/streams/a:b").json()
    assert (found["created"], found["epoch"], found["version"]) == ("2017-07-14T02:40:00Z", 3, None)
    assert client.delete("/v1/streams/a:b").status_code == 204
    problem(client.get("/v1/streams/a:b"), 404, "stream")


def test_what_a_stream_says_of_its_spec_puts_the_same_stream(client: httpx.Client, verbs: FakeVerbs) -> None:
    """Read, write back: nothing changed."""
    client.put(PATH, json={"partitions": 3, "parameters": {"slack": 0.5}, "policy": "kip", "seed": 2**63})
    before = verbs.streams[STREAM]
    client.put(PATH, json=client.get(PATH).json()["spec"])
    assert verbs.streams[STREAM] == before


def test_a_slash_in_a_name_does_not_lead_to_another_route(client: httpx.Client, verbs: FakeVerbs) -> None:
    """`%2F` is a part of the name; names that look like paths are names."""
    for name in ("x/plans/latest", "x/scale", "streams", "a/b/c"):
        quoted = name.replace("/", "%2F")
        assert client.put(f"/v1/streams/{quoted}", json={"partitions": 2}).json()["name"] == name
    problem(client.get("/v1/streams/x/plans/latest"), 404, "stream")
    problem(client.put("/v1/streams/a%252Fb", json={"partitions": 2}), 422, "stream")
    problem(client.put("/v1/streams/a%20b", json={"partitions": 2}), 422, "stream")
    problem(client.put("/v1/streams/a/b/c", json={"partitions": 2}), 404)


# -- histograms and plans -----------------------------------------------------------------------------------


def as_json() -> dict[str, Any]:
    sent = histogram()
    return {**PART, "hashes": [str(h) for h in sent.hashes.tolist()], "counts": sent.counts.tolist()}


def test_a_histogram_is_the_same_in_json_and_protobuf(client: httpx.Client, verbs: FakeVerbs) -> None:
    """To the bit, and so is the plan from it."""
    answer = client.post(f"{PATH}/histograms", json=as_json())
    assert answer.json() == {"rows": histogram().total, "keys": 200, "repeated_report": False}
    plan = client.post(f"{PATH}/plans", json={"batch": 7}).json()["plan"]
    (chunk,) = histograms.chunks(histogram(), STREAM, Part("job/query", 7))
    data = chunk.SerializeToString()
    answer = client.post(f"{PATH}/histograms", content=data, headers={"content-type": PROTOBUF, "accept": PROTOBUF})
    taken = pb.ReportHistogramResponse.FromString(answer.content)
    assert (taken.rows, taken.repeated_report) == (histogram().total, True)
    assert verbs.histograms == {(STREAM, Part("job/query", 7)): histogram()}
    assert client.post(f"{PATH}/plans", json={"batch": 7}).json()["plan"] == plan


def test_the_advised_way_comes_with_the_plan_in_both_formats(client: httpx.Client, verbs: FakeVerbs) -> None:
    """Null, or left out, where nothing was advised."""
    bare = client.post(f"{PATH}/plans", headers={"accept": PROTOBUF, **OWN})
    assert client.post(f"{PATH}/plans", headers=OWN).json()["advice"] is None
    assert not pb.BuildPlanResponse.FromString(bare.content).HasField("advice")
    verbs.advice = WayChoice("same", "previous", "same would have cost 1.1 a batch")
    built = client.post(f"{PATH}/plans", headers=OWN).json()
    models.Built.model_validate(built)
    assert built["advice"] == {"way": "same", "runner_up": "previous", "reason": "same would have cost 1.1 a batch"}
    message = pb.BuildPlanResponse.FromString(client.post(f"{PATH}/plans", headers={"accept": PROTOBUF, **OWN}).content)
    assert choice_from_message(message.advice) == verbs.advice


@pytest.mark.parametrize(
    "given_as", ["18446744073709551611", -5, "-5", 2**64 - 5, "0xfffffffffffffffb", "0XFFFFFFFFFFFFFFFB"]
)
def test_a_hash_may_be_written_in_each_usual_way(client: httpx.Client, verbs: FakeVerbs, given_as: object) -> None:
    """Spark has it signed, JavaScript cannot hold it as a number, people read it in hexadecimal."""
    client.post(f"{PATH}/histograms", json={**PART, "hashes": [given_as], "counts": [3]})
    (got,) = verbs.histograms.values()
    assert got.hashes.tolist() == [2**64 - 5]


@pytest.mark.parametrize("wrong", [2**64, -(2**63) - 1, "0x", "five", "", 1.5, None, True, "0x10000000000000000", "٣"])
def test_what_is_no_hash_is_refused_by_its_place(client: httpx.Client, verbs: FakeVerbs, wrong: object) -> None:
    """The field's path has its index."""
    answer = client.post(f"{PATH}/histograms", json={**PART, "hashes": [1, wrong], "counts": [3, 3]})
    problem(answer, 422, "hashes[1]")
    assert verbs.asked == []


def test_a_large_json_histogram_is_refused_with_the_reason(client: httpx.Client, verbs: FakeVerbs) -> None:
    """50,000 keys are taken, one more is 413 and told what to send instead; as protobuf it goes."""
    keys = list(range(1, 50_002))
    answer = client.post(f"{PATH}/histograms", json={**PART, "hashes": keys, "counts": keys})
    assert PROTOBUF in problem(answer, 413, "hashes")["detail"]
    answer = client.post(f"{PATH}/plans", json={"histogram": {"hashes": keys, "counts": keys}})
    problem(answer, 413, "histogram.hashes")
    assert verbs.asked == []
    fitting = keys[:50_000]
    assert (
        client.post(f"{PATH}/histograms", json={**PART, "hashes": fitting, "counts": fitting}).json()["keys"] == 50_000
    )
    packed = np.array(keys, "<u8").tobytes()
    message = pb.ReportHistogramRequest(part=pb.Part(source="q", parts=1), hashes=packed, counts=packed)
    answer = client.post(f"{PATH}/histograms", content=message.SerializeToString(), headers={"content-type": PROTOBUF})
    assert answer.json()["keys"] == 50_001


def test_the_plan_document_routes_like_the_plan(client: httpx.Client, verbs: FakeVerbs) -> None:
    """Whoever reads only the JSON, by the rule that its schema tells, sends each row where the plan sends it."""
    built = client.post(f"{PATH}/plans", json={"histogram": {k: as_json()[k] for k in ("hashes", "counts")}})
    document = models.Built.model_validate(built.json()).plan
    plan = plan_from_bytes(verbs.plans[STREAM])
    assert (document.digest, document.partitions) == (plan.digest, 4)
    assert any(key.split for key in document.hot)
    rows = np.random.default_rng(1)
    some = np.concatenate([histogram().hashes[:50], rows.integers(0, 2**64, 200, np.uint64)])
    for key, spread in zip(some.tolist(), rows.integers(0, 2**64, len(some), np.uint64).tolist(), strict=True):
        assert routed(document, key, spread) == plan.route_one(key, spread)


def routed(plan: models.PlanDocument, key: int, spread: int) -> int:
    found = next((hot for hot in plan.hot if hot.hash == key), None)
    if found is None:
        return plan.tail[key >> (64 - (len(plan.tail).bit_length() - 1))]
    if found.split is None:
        assert found.partition is not None
        return found.partition
    split = found.split
    slot = (spread >> 1) >> (63 - split.bits)
    return split.first[slot] if spread >> 1 < split.cut[slot] else split.second[slot]


def test_a_plan_is_sent_once_to_who_has_it(client: httpx.Client, verbs: FakeVerbs) -> None:
    """304 by its entity tag, weak or strong, in a list, or any; the version's page never changes."""
    where = client.post(f"{PATH}/plans", json={"histogram": {"hashes": [1, 2], "counts": [5, 5]}}).headers["location"]
    latest = client.get(f"{PATH}/plans/latest")
    tag = latest.headers["etag"]
    digest = plan_from_bytes(verbs.plans[STREAM]).digest
    assert tag == f'W/"{digest}"'
    for known in (tag, f'"{digest}"', f'"other", {tag}', "*"):
        answer = client.get(f"{PATH}/plans/latest", headers={"if-none-match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert client.get(f"{PATH}/plans/latest", headers={"if-none-match": '"other"'}).content == latest.content
    by_version = client.get(where)
    assert by_version.json() == latest.json()
    assert "immutable" in by_version.headers["cache-control"]
    assert "no-cache" in latest.headers["cache-control"]
    as_bytes = client.get(where, headers={"accept": PROTOBUF})
    assert as_bytes.content == verbs.plans[STREAM]
    verbs.stale = True
    assert client.get(f"{PATH}/plans/latest").headers["x-unskew-stale"] == "true"
    problem(client.get(f"{PATH}/plans/9.9"), 404, "version")
    problem(client.get(f"{PATH}/plans/newest"), 422, "version")
    problem(client.get(f"{PATH}/plans/{2**64}.1"), 422, "version")


def test_a_plan_can_be_built_without_a_body(client: httpx.Client) -> None:
    """From the batches before: the usual case."""
    assert client.post(f"{PATH}/plans", headers=OWN).json()["outcome"] == "nothing reported"


# -- learning, batches, explanations ------------------------------------------------------------------------


def test_a_round_is_the_same_in_json_and_protobuf(client: httpx.Client, verbs: FakeVerbs) -> None:
    """The report arrives to the bit, and so does the answer."""
    sent = report(workers=9)
    message = pb.SyncRequest(report=round_messages.report_to_message(sent))
    raw = client.post(
        f"{PATH}/sync", content=message.SerializeToString(), headers={"content-type": PROTOBUF, "accept": PROTOBUF}
    )
    table = {
        "workers": 9,
        "hashes": ["5", str(2**63 + 1)],
        "values": sent.table.values.tolist(),
        "rows": [8, 2],
        "held": [[0, 1], []],
    }
    document = {
        "report": {
            "agent": sent.agent,
            "session": 1,
            "seq": 1,
            "table": table,
            "records": 10,
            "frequent": {"capacity": 4, "hashes": ["5", str(2**63 + 1)], "counts": [8, 2], "total": 10},
            "loads": sent.loads.tolist(),
            "dsync_seconds": 20,
        }
    }
    answer = client.post(f"{PATH}/sync", json=document).json()["answer"]
    first, second = verbs.reports
    assert (first.table, first.frequent, first.loads.tolist()) == (second.table, second.frequent, second.loads.tolist())
    from_bytes = pb.SyncResponse.FromString(raw.content).answer
    from_json = models.SyncAnswer.model_validate(answer)
    assert from_json.table.message() == from_bytes.table
    for name in ("unsure", "split", "loads"):
        assert packed(getattr(from_json, name)) == getattr(from_bytes, name)
    for name in ("incarnation", "epoch", "records", "dsync_seconds", "merged", "age_seconds"):
        assert answer[name] == getattr(from_bytes, name)
    assert answer["split"] == ["1", str(2**63 + 5)]
    again = client.post(f"{PATH}/sync", json={**document, "incarnation": 1, "epoch": 7})
    assert again.json() == {"answer": None}


def test_a_batch_is_reported_and_parallelism_advised(client: httpx.Client, verbs: FakeVerbs) -> None:
    """Part, work and times arrive as they were sent."""
    work = {"partition": 3, "rows": 10, "seconds": 1.5, "queue": 2, "capacity": 4.0}
    body = {**PART, "part": 1, "parts": 4, "partitions": [work], "interval_seconds": 3, "version": "1.2"}
    assert client.post(f"{PATH}/batches", json=body).json() == {"repeated_report": False}
    ((_, part, batch),) = verbs.batches
    assert (part, batch.work[0].capacity, batch.interval) == (Part("job/query", 7, 0, 1, 4), 4.0, 3.0)
    found = client.get(f"{PATH}/scale").json()
    assert found == {"map_tasks": 4, "reduce_tasks": 8, "action": "out", "zone": 3} | {"reason": found["reason"]}


def test_a_key_is_explained_by_hash_or_by_its_values(client: httpx.Client) -> None:
    """The same key in three ways; typed as the stream says, or as the request does."""
    key = int(hash_keys(["alice"])[0])
    client.post(f"{PATH}/plans", json={"histogram": {"hashes": [str(key), "7"], "counts": [50, 50]}})
    by_hash = client.get(f"{PATH}/explain", params={"hash": str(key)}).json()
    assert by_hash["hash"] == str(key)
    assert sum(one["share"] for one in by_hash["fragments"]) == pytest.approx(1.0)
    assert client.post(f"{PATH}/explain", json={"key": ["alice"]}).json() == by_hash
    assert client.post(f"{PATH}/explain", json={"hash": hex(key)}).json() == by_hash
    two = client.post(f"{PATH}/explain", json={"key": [7, None], "types": ["bigint", "date"]}).json()
    assert two["hash"] == str(int(hash_keys(np.array([7]))[0]))
    problem(client.post(f"{PATH}/explain", json={"key": ["a", "b"]}), 422, "key")
    problem(client.post(f"{PATH}/explain", json={"key": ["x"], "types": ["int"]}), 422, "key")
    problem(client.post(f"{PATH}/explain", json={"key": ["x"], "types": ["map"]}), 422, "types")
    problem(client.post(f"{PATH}/explain", json={}), 422, "key")
    problem(client.get(f"{PATH}/explain", params={"hash": "x"}), 422, "hash")


def test_every_answer_is_as_its_model_describes_it(client: httpx.Client, verbs: FakeVerbs) -> None:
    """No field more, none less, and each in its bounds: the model is what the OpenAPI document says."""
    spec = {"partitions": 4, "policy": "kip", "parameters": {"slack": 0.25}, "weights": [1] * 4, "key_types": ["int"]}
    histogram = {name: as_json()[name] for name in ("hashes", "counts")}
    calls: list[tuple[str, str, object, type[models.Model]]] = [
        ("PUT", PATH, spec, models.Stream),
        ("GET", PATH, None, models.Stream),
        ("GET", "/v1/streams", None, models.StreamPage),
        ("POST", f"{PATH}/histograms", as_json(), models.ReportedHistogram),
        ("POST", f"{PATH}/plans", {"histogram": histogram}, models.Built),
        ("GET", f"{PATH}/plans/latest", None, models.PlanDocument),
        ("POST", f"{PATH}/batches", PART, models.Reported),
        ("GET", f"{PATH}/scale", None, models.Scale),
        ("POST", f"{PATH}/explain", {"hash": histogram["hashes"][0]}, models.Explanation),
        ("GET", f"{PATH}/overview", None, StreamOverview),
        ("GET", "/v1/overview", None, OverviewPage),
    ]
    for method, path, body, model in calls:
        answer = client.request(method, path, json=body)
        assert answer.is_success, answer.text
        read = model.model_validate_json(answer.content)
        assert read.model_fields_set == set(model.model_fields) == set(answer.json())


# -- problems -----------------------------------------------------------------------------------------------


def test_the_frameworks_own_errors_are_problems_too(client: httpx.Client) -> None:
    """No such path, no such method, a parameter out of bounds."""
    problem(client.get("/nowhere"), 404)
    problem(client.get("/v1/streams/"), 404)
    answer = client.patch(PATH)
    problem(answer, 405)
    assert answer.headers["allow"] == "DELETE, GET, PUT"
    problem(client.get("/v1/streams", params={"limit": 0}), 422, "limit")
    problem(client.get(f"{PATH}/explain"), 422, "hash")


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["partitions"]),
        ({"partitions": 0, "policy": 5}, ["partitions", "policy"]),
        ({"partitions": 4, "partition": 4}, ["partition"]),
        ({"partitions": 4, "policy": "magic"}, ["spec.policy"]),
        ({"partitions": 4, "weights": [1]}, ["spec.weights"]),
        ({"partitions": 4, "dsync_seconds": 0.5}, ["spec.dsync_seconds"]),
        ([], ["body"]),
    ],
)
def test_each_wrong_field_is_named(client: httpx.Client, verbs: FakeVerbs, body: object, fields: list[str]) -> None:
    """By its path; and nothing is changed."""
    problem(client.put("/v1/streams/x", json=body), 422, *fields)
    assert "x" not in verbs.streams


def test_bodies_that_are_not_what_they_say_are_refused(client: httpx.Client) -> None:
    """400 for bytes that cannot be read, 415 for other types, 413 for too many."""
    problem(client.put(PATH, content="{", headers={"content-type": "application/json"}), 400)
    problem(client.put(PATH, content='{"partitions": NaN}'), 422, "partitions")
    problem(client.put(PATH, data={"partitions": "4"}), 415)
    problem(client.put(PATH, content=b"x", headers={"content-encoding": "gzip"}), 415)
    problem(client.post(f"{PATH}/plans", content=b"\xff\xff", headers={"content-type": PROTOBUF}), 400)
    other = pb.BuildPlanRequest(stream="other").SerializeToString()
    problem(client.post(f"{PATH}/plans", content=other, headers={"content-type": PROTOBUF}), 422, "stream")
    problem(client.post(f"{PATH}/plans", content=bytes((8 << 20) + 1), headers=OWN), 413)
    problem(client.post(f"{PATH}/plans", content=(bytes(1 << 20) for _ in range(9)), headers=OWN), 413)


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (ConflictError("another key type"), 409, {}),
        (LimitError("too many streams"), 429, {"retry-after": "1"}),
        (UnavailableError("the store is away"), 503, {"retry-after": "1"}),
        (TimeoutError(), 504, {}),
        (ServiceError("odd"), 500, {}),
    ],
)
def test_each_error_has_its_status(
    client: httpx.Client, verbs: FakeVerbs, error: Exception, status: int, headers: dict[str, str]
) -> None:
    """And says when to come again where that is of use."""
    verbs.trouble = error
    answer = client.get(PATH)
    problem(answer, status)
    assert headers.items() <= answer.headers.items()


def test_an_error_of_our_own_tells_the_caller_a_number_only(
    client: httpx.Client, verbs: FakeVerbs, caplog: pytest.LogCaptureFixture
) -> None:
    """500 without a trace; the log has the trace under the same number."""
    verbs.trouble = RuntimeError("secret path")
    said = problem(client.get(PATH), 500)["detail"]
    assert "secret" not in said
    (line,) = [record for record in caplog.records if record.exc_info]
    assert line.getMessage().rpartition(" ")[2] in said


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.dictionaries(
    st.sampled_from(
        ["partitions", "policy", "parameters", "weights", "seed", "source", "batch", "run", "part", "parts", "hashes",
         "counts", "spread", "tail", "histogram", "fresh", "report", "wait_seconds", "key", "types", "hash", "version"]
    ),
    JSON,
    max_size=6,
) | JSON  # fmt: skip
PLACES = ["", "/histograms", "/plans", "/sync", "/batches", "/explain"]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(PLACES), BODIES)
def test_no_json_brings_it_down(client: httpx.Client, place: str, body: object) -> None:
    """Any document on any route: an answer, or a problem of the caller's own, never a 5xx."""
    answer = client.request("PUT" if not place else "POST", PATH + place, json=body)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        problem(answer, answer.status_code, *(error["field"] for error in answer.json().get("errors", ())))


# -- the document and health --------------------------------------------------------------------------------


def test_the_openapi_document_is_whole(client: httpx.Client) -> None:
    """Every route of the contract with its verb's name; every reference leads somewhere; limits are in it."""
    document = client.get("/openapi.json").json()
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    at = "/v1/streams/{stream}"
    assert routes == {
        ("GET", "/v1/streams"), ("PUT", at), ("GET", at), ("DELETE", at), ("POST", f"{at}/histograms"),
        ("POST", f"{at}/plans"), ("GET", f"{at}/plans/latest"), ("GET", f"{at}/plans/{{version}}"),
        ("POST", f"{at}/sync"), ("POST", f"{at}/batches"), ("GET", f"{at}/scale"), ("GET", f"{at}/explain"),
        ("POST", f"{at}/explain"), ("GET", f"{at}/overview"), ("GET", "/v1/overview"),
    }  # fmt: skip
    schemas = document["components"]["schemas"]
    names = {ref.rpartition("/")[2] for ref in _references(document)}
    assert names <= set(schemas)
    assert schemas["StreamSpec"]["properties"]["partitions"]["maximum"] == 8192
    assert schemas["ReportHistogram"]["properties"]["hashes"]["maxItems"] == 50_000
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        assert operation["description"]
        assert operation["responses"]["422"]["content"] == {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}
        }
    assert "HTTPValidationError" not in schemas


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value
            yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def test_the_messages_and_the_models_have_the_same_fields() -> None:
    """A field that is added to the contract is added here; the packed arrays have one name in both."""
    pairs = [
        (models.StreamSpec, pb.StreamSpec),
        (models.Stream, pb.Stream),
        (models.QTable, pb.QTable),
        (models.FrequentItems, pb.FrequentItems),
        (models.SyncReport, pb.SyncReport),
        (models.SyncAnswer, pb.SyncAnswer),
        (models.PartitionWork, pb.PartitionWork),
        (models.Scale, pb.GetScaleResponse),
        (models.ReportedHistogram, pb.ReportHistogramResponse),
    ]
    for model, message in pairs:
        assert set(model.model_fields) == {field.name for field in message.DESCRIPTOR.fields}
    assert MessageToDict(pb.StreamSpec(partitions=4)) == {"partitions": 4}


def test_an_idle_client_is_told_to_close_while_draining(service: Served, client: httpx.Client) -> None:
    """So that its next request goes to another replica; readiness says it first."""
    rest = service.running._rest
    assert "connection" not in client.get("/healthz").headers
    rest.draining = True
    try:
        answer = client.get("/readyz")
        problem(answer, 503)
        assert answer.headers["connection"] == "close"
        assert client.get("/healthz").status_code == 200
    finally:
        rest.draining = False


def test_metrics_tell_calls_by_method_and_code(service: Served, client: httpx.Client) -> None:
    """The process too; nothing else is under that port."""
    client.get(PATH)
    client.get("/v1/streams/none")
    page = httpx.get(service.metrics, trust_env=False, timeout=60).text
    assert 'unskew_rpc_seconds_count{code="200",method="GetStream"}' in page
    assert 'unskew_rpc_seconds_count{code="404",method="GetStream"}' in page
    assert "process_resident_memory_bytes" in page
    problem(httpx.get(service.metrics.replace("/metrics", "/"), trust_env=False, timeout=60), 404)
