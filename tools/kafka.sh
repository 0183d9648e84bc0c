#!/bin/bash
# Print a folder of jars for the Kafka tests: broker/ to run a broker, spark/ for Spark's own Kafka source and sink.
# Usage: tools/kafka.sh [VERSION OF SPARK]. Maven fetches them once, from Maven Central, into a cache outside this
# folder; Maven itself is the one that is there, else Debian's package where apt and root allow. Where it cannot be done
# one line on stderr says why, and the tests skip.
set -euo pipefail

ROOT="$(cd "$(dirname "$0")/.." && pwd)"
KAFKA=3.9.2 # the clients of Spark 4.0 to 4.3, and a broker of the same version
PLUGIN=org.apache.maven.plugins:maven-dependency-plugin:3.9.0
SPARK="${1:-$("$ROOT/.venv/bin/python" -c 'import pyspark; print(pyspark.__version__)')}"
JARS="${XDG_CACHE_HOME:-$HOME/.cache}/unskew/kafka-$KAFKA-spark-$SPARK"

give_up() {
    echo "unskew: no Kafka for the tests: $1" >&2
    exit 1
}

install_by_apt() {
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    echo "unskew: no Maven found, installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null || true
    apt-get install -y -qq --no-install-recommends maven >&2 </dev/null
}

# -U: that a version was not there yesterday is no answer today.
maven() {
    (cd "$work" && mvn -q -B -ntp -U "$@" </dev/null >>"$work/log" 2>&1)
}

# The broker and all it needs to run; it logs to its stderr.
fetch_broker() {
    cat >"$work/pom.xml" <<EOF
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>unskew</groupId><artifactId>kafka-for-tests</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
EOF
    maven "$PLUGIN:copy-dependencies" -DincludeScope=runtime -DoutputDirectory="$work/broker"
}

# Versions of Spark worth asking for, best first: its own, older patches, the first ones of older minor versions.
versions() {
    local major minor patch
    IFS=. read -r major minor patch <<<"$SPARK"
    for ((patch = ${patch%%[!0-9]*}; patch >= 0; patch--)); do echo "$major.$minor.$patch"; done
    for ((minor = minor - 1; minor >= 0; minor--)); do echo "$major.$minor.0"; done
}

# One jar alone: what else it names is Spark's already, or fetched beside it. Spark's parent pom sends Maven to a mirror
# for whatever it resolves by itself, and that one may be out of reach.
fetch_jar() {
    maven "$PLUGIN:copy" -Dartifact="$1" -DoutputDirectory="$work/spark"
}

# PySpark comes out on PyPI before its jars are on every copy of Maven Central, and some copies leave versions out.
fetch_of_spark() {
    local version
    for version in $(versions); do
        fetch_jar "org.apache.spark:$1:$version" || continue
        [ "$version" = "$SPARK" ] || echo "unskew: $1 $SPARK is not to be had, using $version" >&2
        return 0
    done
    return 1
}

fetch() {
    command -v mvn >/dev/null || install_by_apt || give_up "install Maven (Debian, Ubuntu: apt-get install maven; macOS: brew install maven)"
    mkdir -p "$(dirname "$JARS")"
    work="$(mktemp -d "$JARS.XXXXXX")" # beside its last place: moved there whole, or never seen
    trap 'rm -rf "$work"' EXIT
    fetch_broker && fetch_jar "org.apache.kafka:kafka-clients:$KAFKA" &&
        fetch_jar org.apache.commons:commons-pool2:2.13.1 &&
        fetch_jar org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0 &&
        fetch_of_spark spark-sql-kafka-0-10_2.13 &&
        fetch_of_spark spark-token-provider-kafka-0-10_2.13 ||
        give_up "Maven could not fetch it: $(grep -o 'Could not.*' "$work/log" | tail -n 1)"
    rm "$work/log" "$work/pom.xml"
    [ -d "$JARS" ] || mv "$work" "$JARS" # another run may have been quicker
}

[ -d "$JARS" ] || fetch
echo "$JARS"
