#!/bin/bash
# Print the path of a redis-server 7 or newer for the tests: the one that is there, else the one of Debian's package
# installed by apt where apt and root allow, else one line on stderr that says what to install.
set -euo pipefail

VENV="$(cd "$(dirname "$0")/.." && pwd)/.venv"

# The major version of this redis-server, 0 if it does not run.
major() {
    local line
    line="$("$1" --version 2>/dev/null | sed -n 's/.* v=\([0-9]*\)\..*/\1/p' | head -n 1)" || true
    echo "${line:-0}"
}

find_server() {
    local server
    for server in "${REDIS_SERVER:-}" "$(command -v redis-server || true)" "$VENV/bin/redis-server"; do
        if [ -n "$server" ] && [ -x "$server" ] && [ "$(major "$server")" -ge 7 ]; then
            echo "$server"
            return 0
        fi
    done
    return 1
}

# The package redis-tools holds the program under another name, without the service that redis-server would start here.
install_by_apt() {
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    echo "unskew: no redis-server 7 or newer found, installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null || true
    apt-get install -y -qq --no-install-recommends redis-tools >&2 </dev/null || return 1
    local program
    program="$(command -v redis-check-rdb)" && mkdir -p "$VENV/bin" && ln -sf "$program" "$VENV/bin/redis-server"
}

find_server || { install_by_apt && find_server; } || {
    echo "unskew: the tests need redis-server 7 or newer on PATH: install it (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis) or set REDIS_SERVER" >&2
    exit 1
}
