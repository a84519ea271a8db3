#!/usr/bin/env bash
# Everything: lint, every test also the slow ones, on every server; a skip that nobody allowed is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

# What some tests need, and the packages of Debian that bring it.
NEEDED=(
    "redis-server:redis-server"
    "etcd:etcd-server"
    "spin:spin"
    "gcc:gcc libc6-dev"
    "openssl:openssl"
    "curl:curl"
    "promtool:prometheus"
    "chromium:chromium"
    "/usr/lib/postgresql/*/bin/initdb:postgresql"
    "mariadbd:mariadb-server-core"
    "my_print_defaults:mariadb-client-core"
    "node:nodejs"
    "npm:npm"
    "go:golang-go"
    "javac:default-jdk-headless"
    "mvn:maven"
)

# A program on PATH or where Debian keeps its servers, or a pattern that a file matches.
there() {
    case $1 in
        /*) compgen -G "$1" >/dev/null ;;
        *) PATH=$PATH:/usr/sbin command -v "$1" >/dev/null ;;
    esac
}

# Installed for their programs alone. The policy file is how Debian is told not to start the packaged services;
# one that is already there (containers have it) says the same, so it stays.
install_packages() {
    local policy=/usr/sbin/policy-rc.d made=0 package
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        made=1
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >.make/apt.log 2>&1 || true
    # One by one: what this release does not have must not keep the others away.
    for package in "$@"; do
        apt-get install -y -qq --no-install-recommends "$package" >>.make/apt.log 2>&1 ||
            echo "  $package could not be installed: $(tail -n 1 .make/apt.log)"
    done
    if [ "$made" = 1 ]; then
        rm -f "$policy"
        trap - EXIT
    fi
}

mkdir -p .make
programs=()
packages=()
for needed in "${NEEDED[@]}"; do
    if ! there "${needed%%:*}"; then
        programs+=("${needed%%:*}")
        read -ra brought <<<"${needed#*:}"
        packages+=("${brought[@]}")
    fi
done
if [ "${#packages[@]}" -gt 0 ]; then
    echo "programs that tests need"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "  installing from Debian (no service is started): ${packages[*]}"
        install_packages "${packages[@]}"
    else
        echo "  missing, and this is not Debian as root: ${programs[*]}"
    fi
fi
.venv/bin/python -m interop.install
.venv/bin/python tools/lint.py
echo "tests, all of them"
# Nothing is tried again here, what is marked flaky neither: each failure is looked at.
export PAWLOCK_LINT_SKIPS=.make/skips PAWLOCK_FUZZ_SECONDS=${PAWLOCK_FUZZ_SECONDS:-10}
# Four workers, fewer where they would fight for the cores: many tests are several programs, with deadlines.
workers=$(($(nproc) < 3 ? $(nproc) + 1 : 4))
exec .venv/bin/python -m pytest -q -n "$workers" --dist worksteal --force-reruns 0 --durations=15 --durations-min=10 \
    --allowed-skips=tests/support/allowed_skips.txt tests interop "$@"
