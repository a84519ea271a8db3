#!/usr/bin/env bash
# Makes .venv and installs pawlock into it: `tools/setup_env.sh demo|dev|docs|bench`.
#
# Done once: a stamp in .venv remembers what was installed from which pyproject.toml. A set-up that was
# interrupted is noticed and begun anew, since half an installed package is worse than none.
set -euo pipefail

kind=${1:?which set: demo, dev, docs or bench}
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
venv=.venv
log=.make/setup.log
unfinished=.make/unfinished

say() { printf '  %s\n' "$*"; }
fail() { printf '\nmake: %s\n' "$*" >&2; exit 1; }

case $kind in
    demo) wanted=(-e '.[embedded,cli]') ;;
    dev) wanted=(-e '.[embedded,cli,serve]' --group dev) ;;
    docs) wanted=(-e '.[embedded,cli,serve]' --group docs --group test) ;;
    bench) wanted=(-e '.[embedded,cli,serve]' --group test --group bench) ;;
    *) fail "no such set: $kind (demo, dev, docs or bench)" ;;
esac

# One pyproject.toml, in one place, gives one stamp: a moved checkout or a changed dependency installs again.
fingerprint() { { pwd; cat pyproject.toml tools/setup_env.sh; } | cksum; }
current() { [ -f "$venv/.installed-$1" ] && [ "$(cat "$venv/.installed-$1")" = "$(fingerprint)" ]; }
ready() {
    [ ! -e "$unfinished" ] || return 1
    "$venv/bin/python" -c '' 2>/dev/null || return 1
    chosen || return 1
    current "$kind" || { [ "$kind" = demo ] && current dev; }
}

find_python() {
    local candidate
    # A name on PATH may be a shim that only says "not installed": each one is tried, not just looked up.
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or later was found (looked for: ${PYTHON:-python3.13 python3.12 python3.11 python3}).
      Install one, or name it:  make PYTHON=/path/to/python3.12 ${MAKECMDGOALS:-demo}"
}

# Who names a Python means that one, also where .venv was made with another before; who names none takes what is there.
chosen() { [ -z "$named" ] || [ "$("$named" --version)" = "$("$venv/bin/python" --version)" ]; }

make_venv() {
    local python
    python=${named:-$(find_python)}
    "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 || fail "$("$python" --version) has no venv module.
      On Debian or Ubuntu:  apt-get install python3-venv
      or name another one:  make PYTHON=/path/to/python3.12 ${MAKECMDGOALS:-demo}"
    say "making $venv with $("$python" --version) …"
    rm -rf "$venv"
    "$python" -m venv "$venv" >>"$log" 2>&1 || { cat "$log" >&2; fail "venv could not be made"; }
}

install() {
    "$venv/bin/python" -m pip install --quiet "$@" >>"$log" 2>&1 && return
    tail -n 25 "$log" >&2
    fail "pip could not install (the whole log: $log). Is a package index reachable?"
}

named=
[ -z "${PYTHON:-}" ] || named=$(find_python)
ready && exit 0
mkdir -p .make
if command -v flock >/dev/null; then # two makes at once: the second one waits, and finds it done
    exec 9>.make/lock
    flock 9
    ready && exit 0
fi
: >"$log"
if [ -e "$unfinished" ] && [ -d "$venv" ]; then
    say "an earlier set-up did not finish: beginning anew"
    rm -rf "$venv"
fi
touch "$unfinished"
{ "$venv/bin/python" -c 'import pip' 2>/dev/null && chosen; } || make_venv
say "installing pawlock and what \`$kind\` needs (once) …"
install --upgrade pip
install "${wanted[@]}"
fingerprint >"$venv/.installed-$kind"
rm -f "$unfinished"
