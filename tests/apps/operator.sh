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
listed() { for _ in $(seq 300); do pawl ls 2>/dev/null | grep -q "$1" && return; sleep 0.1; done; fail "$1 is never listed"; }

step "nothing is held yet"
expect 0 pawl ls
silent nightly

step "a job runs and hangs"
pawl run --ttl 5 nightly -- sh -c 'echo "$PAWL_FENCE" >fence; exec sleep 600' 2>job.log &
JOB=$!
listed nightly

step "who holds it"
expect 0 pawl ls --json
says '"name": *"nightly"'
says "$JOB"
expect 0 pawl show nightly
says "$JOB"
says "$(cat fence)"

step "the next run of cron does nothing, and says so by its exit code"
expect 75 pawl run -n nightly -- false
expect 0 pawl run -n -E 0 nightly -- false
expect 75 pawl acquire -w 0.2 nightly

step "somebody waits in the queue"
pawl run -w 60 nightly -- sh -c 'echo "$PAWL_FENCE" >second' &
WAITER=$!
for _ in $(seq 100); do pawl show --json nightly | grep -Eq '"waiters": *\[ *\{|"position"' && break; sleep 0.1; done

step "no answer without a terminal"
expect 64 pawl force-release nightly
expect 0 pawl show nightly
says "$JOB"

step "take it away, with a reason"
expect 0 pawl force-release --yes --reason 'hangs since four, INC-17' nightly
CODE=0; wait "$JOB" || CODE=$?
[ "$CODE" = 76 ] || fail "the job that lost its lock ended with $CODE: $(cat job.log)"
wait "$WAITER" || fail "the waiter was not served"
[ "$(cat second)" -gt "$(cat fence)" ] || fail "the fencing token did not increase"

step "the audit log says who and why"
expect 0 pawl audit
says 'hangs since four, INC-17'
expect 0 pawl audit --json --limit 1
says '"nightly"'

step "by hand, from a script"
VARS=$(pawl acquire --ttl 60 deploy) || fail "acquire ended with $?"
eval "$VARS"
[ "$PAWL_LOCK_NAME" = deploy ] || fail "no name in: $VARS"
expect 75 pawl acquire -n deploy
expect 0 pawl release
expect 76 pawl release
expect 0 pawl acquire -n -t deploy
TICKET=$OUT
expect 0 pawl release "$TICKET"

step "what is wrong with the server"
expect 64 pawl doctor --no-such-option
code=0; OUT=$(pawl doctor --json 2>&1) || code=$?
[ "$code" -le 1 ] || fail "doctor ended with $code: $OUT"
says '"findings"'

step "wrong words end with 64 and say what is right"
expect 64 pawl frobnicate
expect 64 pawl run --ttl 0 nightly -- true
says ttl
expect 127 pawl run nightly -- no-such-program
expect 7 pawl run nightly -- sh -c 'exit 7'

step "the server is away"
expect 69 env PAWL_URL=redis://127.0.0.1:1 pawl ls
expect 69 env PAWL_URL=redis://127.0.0.1:1 pawl run -w 1 nightly -- true

step "nothing is left"
expect 0 pawl ls --json
silent nightly
echo "all is well"
