"""Values that are wrong are refused before anything is installed, by the key's name; so are those that do not fit
together."""

from __future__ import annotations

import pytest

from tests.helm.charts import helm

pytestmark = pytest.mark.xdist_group("helm")

# what is set, and how the schema names it
WRONG = [
    ("replicaCount=two", "replicaCount"),
    ("replicaCount=-1", "replicaCount"),
    ("replicas=3", "replicas"),
    ("fullnameOverride=plans.eu", "fullnameOverride"),
    ("image.digest=sha256:short", "image.digest"),
    ("image.pullPolicy=Sometimes", "image.pullPolicy"),
    ("config.logLevel=loud", "config.logLevel"),
    ("config.maxStream=5", "maxStream"),
    ("config.maxMessageBytes=1", "config.maxMessageBytes"),
    ("config.tokens=abc", "tokens"),
    ("redis.url=http://store:6379", "redis.url"),
    ("redis.exitingSecret=store", "exitingSecret"),
    ("redis.trial.maxMemory=lots", "redis.trial.maxMemory"),
    ("auth.insecure=perhaps", "auth.insecure"),
    ("auth.clientCa.secret=ca", "secret"),
    ("tls.existingSecret=Not_A_Name", "tls.existingSecret"),
    ("tls.caKey=not/a/key", "tls.caKey"),
    ("httpRoute.backendTls=maybe", "httpRoute.backendTls"),
    ("service.type=ExternalName", "service.type"),
    ("service.grpcPort=70000", "service.grpcPort"),
    ("livenessProbe.period=5", "period"),
    ("readinessProbe.periodSeconds=0", "readinessProbe.periodSeconds"),
    ("drain.seconds=-5", "drain.seconds"),
    ("autoscaling.targetCPU=50", "targetCPU"),
    ("podDisruptionBudget.maxUnavailable=half", "podDisruptionBudget.maxUnavailable"),
    ("networkPolicy.egress.redisPorts={redis}", "networkPolicy.egress.redisPorts.0"),
    ("metrics.serviceMonitor.interval=often", "metrics.serviceMonitor.interval"),
    ("keda.stage=shuffle", "keda.stage"),
    ("keda.triggerType=cron", "keda.triggerType"),
    ("keda.tasksPerReplica=0", "keda.tasksPerReplica"),
    ("ingress.hosts[0].host=a", "ingress.hosts.0"),
    ("telemetry.otlpEndpoint=collector:4318", "telemetry.otlpEndpoint"),
]
# what is set, the value that is named first, and what the sentence says to do
UNFIT = [
    (["replicaCount=2"], "replicaCount", "redis.existingSecret"),
    (["autoscaling.enabled=true"], "autoscaling.maxReplicas", "redis.existingSecret"),
    (["redis.url=redis://a", "redis.trial.enabled=true"], "redis.url, redis.trial.enabled", "one of them"),
    (["auth.generate=false"], "auth.generate", "auth.insecure: true"),
    (["auth.insecure=true", "auth.existingSecret=a"], "auth.insecure", "set it to false"),
    (["auth.clientCa.existingSecret=ca"], "auth.clientCa.existingSecret", "tls.existingSecret"),
    (
        ["auth.clientCa.existingSecret=ca", "tls.existingSecret=a", "auth.generate=false"],
        "auth.clientCa.existingSecret",
        "auth.existingSecret",
    ),
    (
        ["auth.clientCa.existingSecret=ca", "tls.existingSecret=a", "keda.enabled=true"],
        "keda.tokenFromEnv",
        "name the variable",
    ),
    (
        ["metrics.serviceMonitor.enabled=true", "auth.existingSecret=a"],
        "metrics.serviceMonitor.bearerTokenSecret.name",
        "reader",
    ),
    (
        ["metrics.serviceMonitor.enabled=true", "auth.clientCa.existingSecret=a", "tls.existingSecret=b"],
        "metrics.serviceMonitor.tlsConfig",
        "certificate",
    ),
    (
        ["autoscaling.enabled=true", "redis.url=redis://a", "autoscaling.minReplicas=9"],
        "autoscaling.minReplicas",
        "autoscaling.maxReplicas",
    ),
    (
        ["autoscaling.enabled=true", "redis.url=redis://a", "autoscaling.targetCPUUtilizationPercentage=0"],
        "autoscaling.targetCPUUtilizationPercentage",
        "autoscaling.targetMemoryUtilizationPercentage",
    ),
    (["httpRoute.enabled=true", "tls.existingSecret=a"], "httpRoute.backendTls", "BackendTLSPolicy"),
    (["ingress.enabled=true", "tls.existingSecret=a"], "ingress.backendTls", "annotation"),
    (["keda.enabled=true", "keda.stream=clicks"], "keda.tokenFromEnv", "name the variable"),
    (["keda.enabled=true", "auth.insecure=true"], "keda.stream", "name the stream"),
    (["keda.enabled=true", "auth.insecure=true", "keda.stream=a"], "keda.scaleTargetRef.name", "scaled"),
]


@pytest.mark.parametrize(("wrong", "name"), WRONG)
def test_a_wrong_value_is_refused_by_name(wrong: str, name: str) -> None:
    done = helm("template", "--set", wrong)
    assert done.returncode != 0
    assert "values.schema.json" in done.stderr or "values don't meet the specifications" in done.stderr
    assert name in done.stderr.partition("unskew:")[2], done.stderr


@pytest.mark.parametrize("release", ["1st", "my.release", "un.unskew", "r" * 50 + "--r"])
def test_a_release_whose_services_could_not_be_called_so_is_refused(release: str) -> None:
    """helm takes the name, Kubernetes would not take the Service's; with fullnameOverride both are content."""
    done = helm("template", "--name-template", release)
    assert done.returncode != 0
    assert f"fullnameOverride: the release {release} would have a Service" in done.stderr
    assert helm("template", "--name-template", release, "--set", "fullnameOverride=plans").returncode == 0


@pytest.mark.parametrize(("given", "name", "told"), UNFIT)
def test_values_that_do_not_fit_together_are_refused_in_one_sentence(given: list[str], name: str, told: str) -> None:
    """It begins with the value that is to be looked at, and says what to do."""
    done = helm("template", *(word for one in given for word in ("--set", one)))
    assert done.returncode != 0
    sentence = done.stderr.splitlines()[0].partition("): ")[2]  # after where in the chart it was said
    assert sentence.startswith(f"{name}:"), done.stderr
    assert told in sentence
