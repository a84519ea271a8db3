package main

import (
	"context"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	goredislib "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// Each library the way its manual shows it. `best` asks again after a millisecond, and waits for no more nodes
// than a majority.
var openers = map[string]func(job) (func(string) handle, error){
	"redsync": openRedsync, "bsm-redislock": openBsm,
}

func clients(j job) []*redis.Client {
	var all []*redis.Client
	for _, host := range hosts(j) {
		all = append(all, redis.NewClient(&redis.Options{Addr: host, PoolSize: max(10, j.Workers)}))
	}
	return all
}

func openRedsync(j job) (func(string) handle, error) {
	var pools []goredislib.Pool
	for _, client := range clients(j) {
		pools = append(pools, goredis.NewPool(client))
	}
	sync := redsync.New(pools...)
	options := []redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32)}
	if j.Options["best"] != 0 {
		options = append(options, redsync.WithRetryDelay(time.Millisecond), redsync.WithFailFast(true))
	}
	return func(name string) handle {
		return func() (func() error, error) {
			mutex := sync.NewMutex(name, options...)
			if err := mutex.Lock(); err != nil {
				return nil, err
			}
			return func() error { _, err := mutex.Unlock(); return err }, nil
		}
	}, nil
}

func openBsm(j job) (func(string) handle, error) {
	locker := redislock.New(clients(j)[0])
	// It does not wait by default: its manual's example asks again after 100 ms.
	every := 100 * time.Millisecond
	if j.Options["best"] != 0 {
		every = time.Millisecond
	}
	deadline, _ := context.WithTimeout(context.Background(), time.Hour)
	return func(name string) handle {
		return func() (func() error, error) {
			options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}
			lock, err := locker.Obtain(deadline, name, ttl, options)
			if err != nil {
				return nil, err
			}
			return func() error { return lock.Release(context.Background()) }, nil
		}
	}, nil
}
