"""A Redis that is reached over TLS, by a user of its own: who is let in."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.laws import LEASE, merge, plan
from tests.servers import Server, free_ports, single
from unskew.core.rounds.round_log import ReportKey, ReportOutcome
from unskew.service.errors import UnavailableError
from unskew.service.stores import open_store
from unskew.service.stores.records import PlanOutcome

pytestmark = pytest.mark.anyio

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
RIGHTS = "+@hash +@sortedset +@set +@scripting +@keyspace +get +set +publish +subscribe +time +ping -@dangerous"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (ca), what it signed (server, job), and another authority (other)."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "san").write_text("subjectAltName=DNS:localhost\n")
    for name in ("ca", "other"):
        made = "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2"
        openssl(folder, "req", "-x509", *KEY, *made)
    for name in ("server", "job"):
        openssl(folder, "req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san"
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    return folder


@dataclass
class Secure:
    """A Redis that asks for a certificate of its authority, and for a user that may only use the prefix ``mine``."""

    server: Server
    port: int
    papers: Path

    def url(self, host: str = "localhost", user: str = "unskew:secret%2F1@", **options: str) -> str:
        files = {"ca": "ca.pem", "cert": "job.pem", "key": "job.key"} | options
        words = [
            f"{name}={self.papers / file}" for name, file in files.items() if file and name in ("ca", "cert", "key")
        ]
        words += [f"{name}={value}" for name, value in options.items() if name not in ("ca", "cert", "key")]
        return f"rediss://{user}{host}:{self.port}?{'&'.join([*words, 'prefix=mine', 'timeout=5', 'deadline=10'])}"


@pytest.fixture
def secure(tmp_path: Path, papers: Path) -> Iterator[Secure]:
    (port,) = free_ports(1)
    tls = [f"tls-port {port}", "tls-auth-clients yes", f"tls-ca-cert-file {papers / 'ca.pem'}"]
    tls += [f"tls-cert-file {papers / 'server.pem'}", f"tls-key-file {papers / 'server.key'}"]
    with single(tmp_path, *tls) as server:
        rules = f"on >secret/1 ~{{mine:* ~mine:* &mine:* {RIGHTS}"
        server.ask("ACL", "SETUSER", "unskew", *rules.split())
        server.ask("ACL", "SETUSER", "default", "off")
        yield Secure(server, port, papers)


async def test_a_store_works_over_tls_with_a_certificate_and_a_user_of_its_own(secure: Secure) -> None:
    """A stream, a plan, a round and the news of them, with no more rights than those of the prefix."""
    store, other = open_store(secure.url()), open_store(secure.url())
    news = other.news()
    record, created = await store.put_stream("clicks", b"spec")
    assert created
    assert await store.put_plan("clicks", plan(record.incarnation, 1, "batch:1"), None) is PlanOutcome.STORED
    assert await store.report("clicks", ReportKey("ann", 1, 1), b"", LEASE) is ReportOutcome.STORED
    assert (await merge(other, 1)).names == (ReportKey("ann", 1, 1),)
    assert await other.plan("clicks") == plan(record.incarnation, 1, "batch:1")
    assert [one.name for one in await other.streams("", 9)] == ["clicks"]
    renewed = await store.renew_stream(record, 1.0)
    assert renewed is not None
    assert renewed[1]
    heard = asyncio.ensure_future(anext(news))
    for number in range(1000):  # what is told before there is a subscription is lost
        await store.put_stream("clicks", b"%d" % number)
        await asyncio.wait((heard,), timeout=0.02)
        if heard.done():
            break
    assert heard.result().stream == "clicks"
    for one in (store, other):
        await one.close()


@pytest.mark.parametrize(
    "given",
    [
        {"ca": "other.pem"},
        {"cert": "", "key": ""},
        {"host": "127.0.0.1"},
        {"user": "unskew:wrong@"},
        {"user": ""},
    ],
    ids=["not our authority", "no certificate", "not its name", "wrong password", "nobody"],
)
async def test_who_trusts_or_shows_the_wrong_thing_gets_nothing(secure: Secure, given: dict[str, str]) -> None:
    """Each is one clear error, without the password."""
    store = open_store(secure.url(**given))
    with pytest.raises(UnavailableError) as raised:
        await store.put_stream("clicks", b"")
    assert "wrong" not in raised.value.message
    await store.close()


async def test_the_name_need_not_fit_where_that_is_said(secure: Secure) -> None:
    """``check_host=no``: the authority is still checked."""
    store = open_store(secure.url("127.0.0.1", check_host="no"))
    await store.put_stream("clicks", b"")
    await store.close()
    store = open_store(secure.url("127.0.0.1", check_host="no", ca="other.pem"))
    with pytest.raises(UnavailableError):
        await store.put_stream("clicks", b"")
    await store.close()
