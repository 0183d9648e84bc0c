#!/bin/bash
# Print the home of a Java 17 or newer for Spark: the one that is there, else one installed by apt where apt and
# root allow, else one line on stderr that says what to install.
set -euo pipefail

# The major version of this java, 0 if it does not run ("1.8.0" counts as 1: too old either way).
major() {
    local line
    line="$("$1" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)" || true
    echo "${line:-0}"
}

# Homes worth trying, best first. A symlink such as /usr/bin/java is followed to the home it belongs to.
candidates() {
    [ -z "${JAVA_HOME:-}" ] || echo "$JAVA_HOME"
    local found
    if found="$(command -v java)"; then dirname "$(dirname "$(readlink -f "$found")")"; fi
    if [ -x /usr/libexec/java_home ]; then /usr/libexec/java_home -v 17+ 2>/dev/null || true; fi
    local home
    for home in /usr/lib/jvm/*; do [ ! -x "$home/bin/java" ] || echo "$home"; done
}

find_home() {
    local home
    while read -r home; do
        if [ -x "$home/bin/java" ] && [ "$(major "$home/bin/java")" -ge 17 ]; then
            echo "$home"
            return 0
        fi
    done < <(candidates)
    return 1
}

install_by_apt() {
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    echo "unskew: no Java 17 or newer found, installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null || true
    apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless >&2 </dev/null ||
        apt-get install -y -qq --no-install-recommends default-jre-headless >&2 </dev/null
}

find_home || { install_by_apt && find_home; } || {
    echo "unskew: Spark needs Java 17 or newer: install a JRE (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME" >&2
    exit 1
}
