#!/usr/bin/env bash
# Everything: lint, every test also the slow ones, on every server; a skip that nobody allowed is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

# Installs Debian's redis-server for its binary alone. The policy file is how Debian is told not to start the
# packaged service; one that is already there (containers have it) says the same, so it stays.
install_redis() {
    local policy=/usr/sbin/policy-rc.d made=0
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        made=1
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >.make/apt.log 2>&1 || true
    apt-get install -y -qq --no-install-recommends redis-server >>.make/apt.log 2>&1 ||
        echo "  redis-server could not be installed: $(tail -n 1 .make/apt.log)"
    if [ "$made" = 1 ]; then
        rm -f "$policy"
        trap - EXIT
    fi
}

mkdir -p .make
if ! command -v redis-server >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "servers"
        echo "  installing redis-server from Debian (its service is not started)"
        install_redis
    else
        echo "  redis-server is not on PATH and this is not Debian as root: its tests will be missing"
    fi
fi
if ! { command -v spin && command -v gcc; } >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "models"
    echo "  installing spin and gcc from Debian"
    { apt-get update -qq || true; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        spin gcc libc6-dev; } >.make/apt.log 2>&1 || echo "  spin could not be installed: $(tail -n 1 .make/apt.log)"
fi
.venv/bin/python tools/lint.py
echo "tests, all of them"
export PAWL_LINT_SKIPS=.make/skips
exec .venv/bin/python -m pytest -q --durations=15 --durations-min=5 --allowed-skips=tests/allowed_skips.txt "$@"
