#!/bin/bash
# Print the path of libfaketime for tests of a wrong clock: FAKETIME_LIBRARY, else that of Debian's package, which is
# installed where apt and root allow; else one line on stderr that says what to install.
set -euo pipefail

debian() { compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" | head -n 1; }

library="${FAKETIME_LIBRARY:-$(debian || true)}"
if [ -z "$library" ] && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq || true; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libfaketime; } >&2 </dev/null || true
    library="$(debian || true)"
fi
if [ ! -r "$library" ]; then
    echo "unskew: tests of a wrong clock need libfaketime: install it (Debian, Ubuntu: apt-get install libfaketime) or set FAKETIME_LIBRARY" >&2
    exit 1
fi
echo "$library"
