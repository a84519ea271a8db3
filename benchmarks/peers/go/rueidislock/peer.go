package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Who has waited for a second asks anew. In 1.0.79 a failed try may count itself out of the waiters twice (a goroutine
// of `try` reads `failures` before it is counted up); then the gate that the others sleep at is forgotten, nobody tells
// them of a release, and the free name is nobody's for good.
const patience = time.Second

// The way its manual shows it. `best` takes one key instead of three, a majority of which is locked by default: on one
// server that serves no purpose.
var openers = map[string]func(job) (func(string) handle, error){"rueidislock": openRueidis}

func openRueidis(j job) (func(string) handle, error) {
	option := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: hosts(j)[:1]},
		KeyValidity:  ttl,
	}
	if j.Options["best"] != 0 {
		option.KeyMajority = 1
	}
	locker, err := rueidislock.NewLocker(option)
	if err != nil {
		return nil, err
	}
	return func(name string) handle {
		return func() (func() error, error) {
			for {
				// Not a deadline: rueidislock would shorten the lease to it.
				waiting, enough := context.WithCancel(context.Background())
				timer := time.AfterFunc(patience, enough)
				_, cancel, err := locker.WithContext(waiting, name)
				inTime := timer.Stop()
				switch {
				case inTime && err != nil:
					return nil, err
				case inTime:
					return func() error { cancel(); enough(); return nil }, nil
				case err == nil:
					cancel()
				}
			}
		}
	}, nil
}
