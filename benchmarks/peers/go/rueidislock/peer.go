package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

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
			_, cancel, err := locker.WithContext(context.Background(), name)
			return func() error { cancel(); return nil }, err
		}
	}, nil
}
