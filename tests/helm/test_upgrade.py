"""What becomes of generated tokens and of the trial Redis' password over the life of a release.

helm's own verbs do it, against as much of an API server as they take.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.charts import CHART, VALUES
from tests.helm.cluster import Cluster, cluster

pytestmark = pytest.mark.xdist_group("helm")
TRIAL = ("--values", VALUES / "trial-redis.yaml")


@pytest.fixture
def there() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


def did(there: Cluster, verb: str, *arguments: str | Path, chart: Path = CHART) -> None:
    """The server would say what is wrong with fields, and here it says nothing."""
    unchecked = ["--disable-openapi-validation"] if verb in ("install", "upgrade") else []
    done = there.helm(verb, *arguments, *unchecked, chart=chart)
    assert done.returncode == 0, done.stderr


def data(there: Cluster, name: str = "unskew-auth") -> dict[str, str]:
    """Of this Secret, as it is now."""
    return dict(there.objects["secrets", name]["data"])


def rotate(there: Cluster, key: str) -> None:
    """As docs/kubernetes.md says: take it out, and upgrade."""
    del there.objects["secrets", "unskew-auth"]["data"][key]
    did(there, "upgrade")


def test_generated_secrets_are_kept_over_upgrades(there: Cluster) -> None:
    """Jobs keep their tokens, and Redis and the service the password that they agreed on. Where nothing is to be made
    the tokens are not even written."""
    did(there, "install", *TRIAL)
    tokens, password = data(there), data(there, "unskew-redis")
    there.done.clear()
    did(there, "upgrade", *TRIAL)
    assert (data(there), data(there, "unskew-redis")) == (tokens, password)
    assert [one for one in there.done if one[2] == "unskew-auth"] == []


def test_a_token_that_is_taken_away_is_made_anew(there: Cluster) -> None:
    """The way to rotate one. The other stays, and the pods are told of both."""
    did(there, "install")
    first = data(there)
    rotate(there, "metrics-token")
    then = data(there)
    assert then["token"] == first["token"]
    assert then["metrics-token"] != first["metrics-token"]
    digests = [line.split()[0] for line in base64.b64decode(then["tokens"]).decode().splitlines()]
    assert len(set(digests)) == 2
    assert then["tokens"] != first["tokens"]


def test_a_rollback_does_not_bring_a_rotated_token_back(there: Cluster) -> None:
    """Nor does it take the new one from those who have it by now."""
    did(there, "install")
    leaked = data(there)["token"]
    rotate(there, "token")
    rotated = data(there)
    assert rotated["token"] != leaked
    did(there, "rollback", "1")
    assert data(there) == rotated
    did(there, "rollback", "2")
    assert data(there) == rotated


def test_tokens_outlive_the_release_and_the_next_one_takes_them(there: Cluster) -> None:
    """All else goes. So docs/kubernetes.md says how to take them away."""
    did(there, "install", *TRIAL)
    tokens = data(there)
    did(there, "uninstall")
    assert set(there.objects) == {("secrets", "unskew-auth")}
    did(there, "install", *TRIAL)
    assert data(there) == tokens


def test_a_secret_of_somebody_else_is_left_alone(there: Cluster) -> None:
    """Of another release, or made by hand and not named: the install stops before anything is changed."""
    theirs = {
        "metadata": {"name": "unskew-auth", "labels": {"app.kubernetes.io/instance": "other"}},
        "data": {"a": "YQ=="},
    }
    for secret in (theirs, {**theirs, "metadata": {"name": "unskew-auth"}}):
        there.objects["secrets", "unskew-auth"] = {"apiVersion": "v1", "kind": "Secret", **secret}
        done = there.helm("install")
        assert done.returncode != 0
        assert "auth.generate: the Secret unskew-auth is there and is not this release's" in done.stderr
        assert there.done == []
    did(there, "install", "--set", "auth.existingSecret=unskew-auth")
    assert data(there) == {"a": "YQ=="}


def test_tokens_of_a_chart_that_had_them_in_the_release_are_kept(there: Cluster, tmp_path: Path) -> None:
    """Before 0.1.0 the Secret was no hook; helm would delete what the new release does not have."""
    older = shutil.copytree(CHART, tmp_path / "unskew")
    template = older / "templates" / "secret-auth.yaml"
    plain = re.sub(r"  annotations:\n(    helm.sh/.*\n)+", "", template.read_text())
    assert plain != template.read_text()
    template.write_text(plain)
    did(there, "install", chart=older)
    tokens = data(there)
    for _ in range(2):
        did(there, "upgrade")
        assert data(there) == tokens
