#!/bin/bash
# Print the path of libfaketime for tests of a wrong clock: the one that is there, else that of Debian's package installed
# by apt where apt and root allow, else one line on stderr that says what to install.
set -euo pipefail

find_library() {
    local library
    for library in "${FAKETIME_LIBRARY:-}" /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1; do
        if [ -n "$library" ] && [ -r "$library" ]; then
            echo "$library"
            return 0
        fi
    done
    return 1
}

install_by_apt() {
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    echo "unskew: no libfaketime found, installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null || true
    apt-get install -y -qq --no-install-recommends libfaketime >&2 </dev/null
}

find_library || { install_by_apt && find_library; } || {
    echo "unskew: tests of a wrong clock need libfaketime: install it (Debian, Ubuntu: apt-get install libfaketime) or set FAKETIME_LIBRARY" >&2
    exit 1
}
