"""The settings of the service: where they come from, what is refused, what is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.command import in_process, is_one_line
from tests.service.faces import digest_of
from unskew.core.errors import ConfigError
from unskew.service.app.settings import Settings, described, load, parse


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"UNSKEW_{name.upper()}", raising=False)


def test_the_defaults_listen_on_loopback_with_the_documented_ports() -> None:
    """What quickstart says without any setting."""
    settings = load()
    assert (settings.host, settings.http_port, settings.grpc_port, settings.metrics_port) == (
        "127.0.0.1",
        8080,
        8081,
        8082,
    )
    assert (settings.store, settings.guarded, settings.loopback) == ("memory", False, True)


def test_a_flag_wins_over_the_environment_which_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sources, one order."""
    monkeypatch.setenv("UNSKEW_HTTP_PORT", "9000")
    monkeypatch.setenv("UNSKEW_GRPC_PORT", "9001")
    monkeypatch.setenv("UNSKEW_METRICS_PORT", "")  # set and empty is not set
    settings = parse(["--http-port", "0", "--drain=2.5"])
    assert (settings.http_port, settings.grpc_port, settings.metrics_port, settings.drain) == (0, 9001, 8082, 2.5)


def test_every_setting_but_the_secret_one_has_a_flag_and_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The tokens themselves would show in a list of processes."""
    with pytest.raises(SystemExit):
        parse(["--help"])
    helped = capsys.readouterr().out
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields if name != "tokens"}
    assert {word for word in helped.replace("]", " ").replace("[", " ").split() if word.startswith("--")} >= flags
    assert "--tokens " not in helped
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--http-port", "70000"], "--http-port (UNSKEW_HTTP_PORT): '70000'"),
        (["--log-level", "loud"], "'debug', 'info'"),
        (["--drain", "-1"], "greater than or equal to 0"),
        (["--nonsense"], "--nonsense"),
        (["--tls-cert", "a.pem"], "both or neither"),
        (["--tls-client-ca", "a.pem"], "--tls-cert"),
        (["--http-port", "x", "--grpc-port", "y"], "and 1 more"),
    ],
)
def test_what_is_not_allowed_is_told_by_its_option(flags: list[str], told: str) -> None:
    """The flag, the value, what is allowed."""
    with pytest.raises(ConfigError, match="-") as why:
        parse(flags)
    assert told in str(why.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "service.internal"])
def test_an_open_address_needs_credentials_or_an_explicit_word(host: str, tmp_path: Path) -> None:
    """Anybody who reached it could change every stream."""
    with pytest.raises(ConfigError, match="--insecure"):
        parse(["--host", host])
    assert parse(["--host", host, "--insecure"]).host == host
    assert parse(["--host", host, "--tokens-file", str(tmp_path / "tokens")]).guarded


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    """A try on one's own machine is one command."""
    assert parse(["--host", host]).loopback


def test_secrets_are_masked_where_settings_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens, and the passwords in the store's URL; a refused value is not repeated either."""
    monkeypatch.setenv("UNSKEW_TOKENS", f"{digest_of('t')} a admin *")
    url = "redis+sentinel://me:hunter2@a:1,b:2/main?sentinel_password=hunter2&ttl=60"
    shown = described(parse(["--store", url]))
    assert shown["store"] == "redis+sentinel://me:***@a:1,b:2/main?sentinel_password=***&ttl=60"
    assert shown["tokens"] == "***"
    assert "hunter2" not in json.dumps(shown)
    assert digest_of("t") not in repr(parse(["--store", url]))


def test_config_check_prints_every_setting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As text and as JSON, with what the environment says in it."""
    monkeypatch.setenv("UNSKEW_STORE", "redis://:geheim@db:6379/1")
    as_text = in_process(capsys, "config", "check", "--http-port", "81")
    assert as_text.code == 0
    assert "http_port" in as_text.out
    assert "redis://:***@db:6379/1" in as_text.out
    document = json.loads(in_process(capsys, "config", "check", "--json").out)
    assert set(document) == set(Settings.model_fields)


@pytest.mark.parametrize(
    "flags",
    [
        ["--store", "mysql://x"],
        ["--host", "0.0.0.0"],
        ["--tokens-file", "/nowhere/at/all"],
        ["--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"],
        ["--log-format", "xml"],
    ],
)
@pytest.mark.parametrize("command", [["config", "check"], ["serve"]])
def test_the_commands_refuse_in_one_line(
    command: list[str], flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, no traceback, before any port is open."""
    done = in_process(capsys, *command, *flags)
    assert (done.code, is_one_line(done.err)) == (2, True)


@pytest.mark.parametrize("command", [["config", "check"], ["serve"]])
def test_without_the_extra_the_commands_say_which_is_missing(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of a traceback; the rest of the command works without it."""
    for module in ("main", "http_server"):
        monkeypatch.delitem(sys.modules, f"unskew.service.app.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = in_process(capsys, *command)
    assert (done.code, is_one_line(done.err)) == (2, True)
    assert "uvicorn" in done.err
    assert "unskew[service]" in done.err
