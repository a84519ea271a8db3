package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// The lock that articles on Go show: SetNX with a random value, a goroutine that prolongs it, and a script that
// compares before it deletes.

var errNotHeld = errors.New("the lock was not held")

var unlockScript = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

var renewScript = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`)

type redisLock struct {
	client *redis.Client
	key    string
	value  string
	ttl    time.Duration
	stop   context.CancelFunc
}

func newRedisLock(client *redis.Client, key string, ttl time.Duration) *redisLock {
	random := make([]byte, 16)
	_, _ = rand.Read(random)
	return &redisLock{client: client, key: key, value: hex.EncodeToString(random), ttl: ttl}
}

func (l *redisLock) tryLock(ctx context.Context) (bool, error) {
	ok, err := l.client.SetNX(ctx, l.key, l.value, l.ttl).Result()
	if err != nil || !ok {
		return false, err
	}
	watched, stop := context.WithCancel(context.Background())
	l.stop = stop
	go l.watch(watched)
	return true, nil
}

func (l *redisLock) lock(ctx context.Context) (bool, error) {
	for {
		ok, err := l.tryLock(ctx)
		if ok || err != nil {
			return ok, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (l *redisLock) watch(ctx context.Context) {
	ticker := time.NewTicker(l.ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if l.renew(ctx, l.ttl) != nil {
				return
			}
		}
	}
}

func (l *redisLock) renew(ctx context.Context, ttl time.Duration) error {
	done, err := renewScript.Run(ctx, l.client, []string{l.key}, l.value, ttl.Milliseconds()).Int()
	if err == nil && done == 0 {
		err = errNotHeld
	}
	return err
}

func (l *redisLock) unlock(ctx context.Context) error {
	l.stop()
	done, err := unlockScript.Run(ctx, l.client, []string{l.key}, l.value).Int()
	if err == nil && done == 0 {
		err = errNotHeld
	}
	return err
}
