#!/bin/bash
# Print the path of a prometheus 2.40 or newer, with promtool beside it, for the tests: the one that is there, else the one
# of Debian's package unpacked into the venv where apt and root allow, else one line on stderr that says what to install.
set -euo pipefail

VENV="$(cd "$(dirname "$0")/.." && pwd)/.venv"

# Whether this prometheus runs, is new enough, and has promtool beside it.
fits() {
    local found
    [ -n "$1" ] && [ -x "$1" ] && [ -x "$(dirname "$1")/promtool" ] || return 1
    found="$("$1" --version 2>&1 | sed -n 's/^prometheus, version \([0-9]*\)\.\([0-9]*\)\..*/\1 \2/p')" || return 1
    # shellcheck disable=SC2086 # two words
    set -- ${found:-0 0}
    [ "$1" -gt 2 ] || { [ "$1" -eq 2 ] && [ "$2" -ge 40 ]; }
}

find_program() {
    local program
    for program in "${PROMETHEUS:-}" "$(command -v prometheus || true)" "$VENV/bin/prometheus"; do
        if fits "$program"; then
            echo "$program"
            return 0
        fi
    done
    return 1
}

# Unpacked and not installed: the package would start a daemon on port 9090, and these two programs need nothing else.
unpack_by_apt() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    echo "unskew: no prometheus 2.40 or newer found, fetching one with apt-get" >&2
    local work
    work="$(mktemp -d)"
    # shellcheck disable=SC2064 # now: the name is local
    trap "rm -rf '$work'" EXIT
    apt-get update -qq >&2 </dev/null || true
    (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root prometheus >&2 </dev/null) || return 1
    dpkg-deb -x "$work"/prometheus_*.deb "$work/root" && mkdir -p "$VENV/bin" || return 1
    mv -f "$work/root/usr/bin/promtool" "$work/root/usr/bin/prometheus" "$VENV/bin/"
}

find_program || { unpack_by_apt && find_program; } || {
    echo "unskew: the tests of dashboards and alerts need prometheus and promtool 2.40 or newer: install them (Debian, Ubuntu: apt-get install prometheus; macOS: brew install prometheus) or set PROMETHEUS" >&2
    exit 1
}
