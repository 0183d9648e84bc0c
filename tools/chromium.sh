#!/bin/bash
# Print the path of a Chromium for the tests of the web page: the one that is there, else the one of Debian's package
# installed by apt where apt and root allow, else one line on stderr that says what to install.
set -euo pipefail

find_browser() {
    local browser
    for browser in "${CHROMIUM:-}" "$(command -v chromium || true)" "$(command -v chromium-browser || true)" \
        "$(command -v google-chrome || true)" "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
        # Ubuntu's package of this name is a script that asks for a snap: only what says its version is a browser.
        if [ -n "$browser" ] && [ -x "$browser" ] && "$browser" --version >/dev/null 2>&1; then
            echo "$browser"
            return 0
        fi
    done
    return 1
}

install_by_apt() {
    command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ] || return 1
    echo "unskew: no Chromium found, installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null || true
    apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >&2 </dev/null
}

find_browser || { install_by_apt && find_browser; } || {
    echo "unskew: the tests of the web page need Chromium on PATH: install it (Debian: apt-get install chromium; macOS: brew install --cask chromium) or set CHROMIUM" >&2
    exit 1
}
