#!/usr/bin/env bash
# The morning of an operator: a job hangs, somebody finds out who holds it, takes it away, and writes down why.
# Each line that begins with `step` names what is looked at; the first thing that is not as it should be ends the script.
set -u

step() { STEP=$1; }
fail() { echo "FAILED at: $STEP: $*" >&2; exit 1; }
expect() { # expect CODE COMMAND...: its exit code; what it printed is in $OUT
    local wanted=$1 code=0
    shift
    OUT=$("$@" 2>&1) || code=$?
    [ "$code" = "$wanted" ] || fail "exit $code instead of $wanted: $* said: $OUT"
}
says() { grep -Eq -- "$1" <<<"$OUT" || fail "no '$1' in: $OUT"; }
silent() { ! grep -Eq -- "$1" <<<"$OUT" || fail "'$1' in: $OUT"; }
listed() { for _ in $(seq 300); do pawlock ls 2>/dev/null | grep -q "$1" && return; sleep 0.1; done; fail "$1 is never listed"; }

step "nothing is held yet"
expect 0 pawlock ls
silent nightly

step "a job runs and hangs"
pawlock run --ttl 5 nightly -- sh -c 'echo "$PAWLOCK_FENCE" >fence; exec sleep 600' 2>job.log &
JOB=$!
listed nightly

step "who holds it"
expect 0 pawlock ls --json
says '"name": *"nightly"'
says "$JOB"
expect 0 pawlock show nightly
says "$JOB"
says "$(cat fence)"

step "the next run of cron does nothing, and says so by its exit code"
expect 75 pawlock run -n nightly -- false
expect 0 pawlock run -n -E 0 nightly -- false
expect 75 pawlock run -w 0.2 nightly -- false

step "somebody waits in the queue"
pawlock run -w 60 nightly -- sh -c 'echo "$PAWLOCK_FENCE" >second' &
WAITER=$!
for _ in $(seq 100); do pawlock show --json nightly | grep -Eq '"waiters": *\[ *\{|"position"' && break; sleep 0.1; done

step "no answer without a terminal"
expect 64 pawlock force-release nightly
expect 0 pawlock show nightly
says "$JOB"

step "take it away, with a reason"
expect 0 pawlock force-release --yes --reason 'hangs since four, INC-17' nightly
CODE=0; wait "$JOB" || CODE=$?
[ "$CODE" = 76 ] || fail "the job that lost its lock ended with $CODE: $(cat job.log)"
wait "$WAITER" || fail "the waiter was not served"
[ "$(cat second)" -gt "$(cat fence)" ] || fail "the fencing token did not increase"

step "what was done to it says who and why"
expect 0 pawlock show nightly
says 'hangs since four, INC-17'

step "what is wrong with the server"
expect 64 pawlock doctor --no-such-option
code=0; OUT=$(pawlock doctor --json 2>&1) || code=$?
[ "$code" -le 1 ] || fail "doctor ended with $code: $OUT"
says '"findings"'

step "wrong words end with 64 and say what is right"
expect 64 pawlock frobnicate
expect 64 pawlock run --ttl 0 nightly -- true
says ttl
expect 127 pawlock run nightly -- no-such-program
expect 7 pawlock run nightly -- sh -c 'exit 7'

step "the server is away"
expect 69 env PAWLOCK_URL=redis://127.0.0.1:1 pawlock ls
expect 69 env PAWLOCK_URL=redis://127.0.0.1:1 pawlock run -w 1 nightly -- true

step "nothing is left"
expect 0 pawlock ls --json
silent nightly
echo "all is well"
