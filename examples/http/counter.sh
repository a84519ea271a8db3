#!/usr/bin/env bash
# counter.sh URL NAME FILE ROUNDS: add 1 to the number in FILE, ROUNDS times, each time under the lock NAME.
# The token comes from $PAWLOCK_TOKEN. Needs bash, curl and sed.
set -euo pipefail
url=$1 name=$2 file=$3 rounds=$4
at=$url/v1/ns/pawlock/lock/$name
ttl=5

# ask PATH BODY KEY: the same request again, under the same key, until some instance has answered it.
ask() {
    local try answer
    for try in {1..40}; do
        # The body, then the status on a line of its own.
        if answer=$(curl -sS --max-time 70 -w '\n%{http_code}' -H "Authorization: Bearer $PAWLOCK_TOKEN" \
            -H "Idempotency-Key: $3" -d "$2" "$at/$1" 2>/dev/null); then
            status=${answer##*$'\n'} body=${answer%$'\n'*}
            case $status in
                429 | 503) ;;
                *) return 0 ;;
            esac
        fi
        sleep "0.$((RANDOM % 50 + 10))"
    done
    echo "no answer from $at" >&2
    return 1
}
key() { echo "$$-$RANDOM-$RANDOM-$(date +%s%N)"; }
field() { sed -E "s/.*\"$1\": ?\"?([^\",}]*).*/\1/" <<<"$body"; }

acquire() { # waits a minute at a time, forever
    while ask acquire "{\"ttl\": $ttl, \"wait\": 60}" "$(key)"; do
        case $status in
            200) token=$(field token) fence=$(field fence) && return ;;
            423) ;; # somebody else had it all the time
            *) echo "$status $body" >&2 && return 1 ;;
        esac
    done
}

renew() { # as long as the work goes on; a refused renewal ends the program
    while sleep $((ttl / 3)); do
        kill -0 $$ 2>/dev/null || exit # killed: its lock is to be free within the ttl
        ask renew "{\"token\": \"$token\", \"ttl\": $ttl}" "$(key)" && [ "$status" = 200 ] || break
    done
    echo "the lock is lost" >&2
    kill -TERM $$
}

for ((round = 0; round < rounds; round++)); do
    acquire
    renew &
    renewing=$!
    number=$(<"$file")
    sleep 0.01 # a long time for a computer: without the lock, others would read the same number
    echo $((number + 1)) >"$file"
    kill "$renewing" && wait "$renewing" 2>/dev/null || true
    ask release "{\"token\": \"$token\"}" "$(key)"
    [ "$status" = 200 ] || { echo "lost before its release: $body" >&2 && exit 1; }
    echo "$fence"
done
