#!/bin/bash
# The tests of tests/spark on another PySpark, in an environment of its own: tools/test_spark.sh PYTHON SPARK [pytest arguments]
# Everything else is as constraints.txt has it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$1 spark=$2
shift 2
[[ $spark =~ ^4\.[0-9]+(\.[0-9]+)?$ ]] || { echo "SPARK: '$spark'; give a version such as 4.0 or 4.1.2" >&2; exit 2; }
venv=.venv-spark-$spark
JAVA_HOME=$(bash tools/java.sh) REDIS_SERVER=$(bash tools/redis.sh)
export JAVA_HOME REDIS_SERVER

if [[ ! -e $venv/.installed || pyproject.toml -nt $venv/.installed || constraints.txt -nt $venv/.installed ]]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    grep -v '^pyspark==' constraints.txt >"$venv/constraints.txt"
    pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --constraint "$venv/constraints.txt")
    echo "installing into $venv (some minutes)"
    "${pip[@]}" hatchling editables setuptools
    [[ $spark == *.*.* ]] && wanted="pyspark==$spark" || wanted="pyspark==$spark.*"
    "${pip[@]}" --no-build-isolation --use-pep517 --editable '.[dev]' "$wanted"
    touch "$venv/.installed"
fi
# Older ones leave sockets of theirs open, of which Python tells whoever runs at the time.
quiet=(-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning)
exec "$venv/bin/python" -m pytest "${quiet[@]}" -m "not long" "${@:-tests/spark}"
