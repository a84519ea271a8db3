// The line protocol for lock libraries of Go: `driver KIND URL`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
	"pawlock.example/wire"
)

type values map[string]any

var (
	plain *redis.Client // of the counter
	locks library
	held  = map[string]lock{}
)

// The machine's monotonic clock, which the drivers share; Go's own begins with the process.
func now() float64 {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &at)
	return float64(at.Sec) + float64(at.Nsec)/1e9
}

func say(what values) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func number(word string) int {
	found, _ := strconv.Atoi(word)
	return found
}

// A wait of -1 has no end.
func acquire(key string, ttlMs, waitMs int) (bool, error) {
	ctx, cancel := background, context.CancelFunc(func() {})
	if waitMs > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(waitMs)*time.Millisecond)
	}
	defer cancel()
	got, err := locks.get(ctx, key, time.Duration(ttlMs)*time.Millisecond, waitMs != 0)
	if got != nil {
		held[key] = got
	}
	return got != nil, err
}

// about adds what the library tells of the lock that it holds.
func about(key string, to values) values {
	if got, ok := held[key].(telling); ok {
		fence, until := got.about()
		to["fence"], to["until"] = fence, now()+time.Until(until).Seconds()
	}
	return to
}

func release(key string) error {
	got := held[key]
	if got == nil {
		return errNotHeld
	}
	delete(held, key)
	return got.release()
}

func step(key string, ttlMs int, counter string, holdMs int) error {
	me, inside, asked := strconv.Itoa(os.Getpid()), "inside:"+counter, now()
	ok, err := acquire(key, ttlMs, 5000)
	if !ok || err != nil {
		return err
	}
	got := now()
	found, err := plain.SetArgs(background, inside, me, redis.SetArgs{Get: true}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	value, err := plain.Get(background, counter).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	say(about(key, values{"event": "held", "t0": asked, "t": got, "found": found, "value": value}))
	time.Sleep(time.Duration(holdMs) * time.Millisecond)
	if err := plain.Set(background, counter, value+1, 0).Err(); err != nil {
		return err
	}
	found, err = plain.GetDel(background, inside).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	last := about(key, values{"event": "left", "found": found, "me": me})
	last["t0"] = now()
	if err := release(key); err != nil {
		return err
	}
	last["t"] = now()
	say(last)
	return nil
}

func count(key string, ttlMs int, seconds float64, counter string, holdMs int) values {
	errs, last := 0, ""
	for until := now() + seconds; now() < until; {
		if err := step(key, ttlMs, counter, holdMs); err != nil {
			errs, last = errs+1, err.Error()
			say(values{"event": "error", "t": now(), "error": last})
			time.Sleep(50 * time.Millisecond)
		}
	}
	return values{"ok": true, "errors": errs, "error": last}
}

func answer(words []string) (values, error) {
	key, rest := words[1], words[2:]
	switch words[0] {
	case "try":
		ok, err := acquire(key, number(rest[0]), 0)
		return about(key, values{"ok": ok}), err
	case "lock":
		ok, err := acquire(key, number(rest[0]), number(rest[1]))
		return about(key, values{"ok": ok}), err
	case "unlock":
		err := release(key)
		return values{"ok": err == nil}, err
	case "extend":
		err := held[key].extend(time.Duration(number(rest[0])) * time.Millisecond)
		return values{"ok": err == nil}, err
	case "state":
		got, state := held[key], "free"
		if got != nil {
			state = map[bool]string{true: "held", false: "lost"}[got.owned()]
		}
		return values{"ok": true, "state": state}, nil
	case "count":
		seconds, _ := strconv.ParseFloat(rest[1], 64)
		return count(key, number(rest[0]), seconds, rest[2], number(rest[3])), nil
	}
	return values{"ok": false}, errors.New("unsupported")
}

func connect(kind, url string) error {
	if at := os.Getenv("COUNTER_URL"); at != "" {
		options, err := redis.ParseURL(at)
		if err != nil {
			return err
		}
		plain = redis.NewClient(options)
	}
	if kind == "gowire" {
		rdb, err := anyClient(url)
		if err != nil {
			return err
		}
		if server, found := rdb.(*redis.Client); found && plain == nil {
			plain = server
		}
		locks = wireLibrary{wire.New(rdb)}
		return nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	server := redis.NewClient(options)
	if plain == nil {
		plain = server
	}
	locks, err = newLibrary(kind, server)
	return err
}

func main() {
	err := connect(os.Args[1], os.Args[2])
	if err != nil {
		panic(err)
	}
	say(values{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		begin := now()
		found, err := answer(strings.Fields(lines.Text()))
		if err != nil {
			found["error"] = err.Error()
			if err.Error() != "unsupported" {
				found["error"] = fmt.Sprintf("%T: %v", err, err)
			}
		}
		found["t0"], found["t"] = begin, now()
		say(found)
	}
}
