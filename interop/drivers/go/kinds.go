package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// One lock of a library. A TTL of 0 is the library's default.
type lock interface {
	release() error
	extend(ttl time.Duration) error
	owned() bool
}

// One that tells its fencing token and until when it may be relied on.
type telling interface {
	about() (fence int64, until time.Time)
}

// A library: nil without an error is a lock that somebody else has. A wait of 0 is one try.
type library interface {
	get(ctx context.Context, key string, ttl time.Duration, wait bool) (lock, error)
}

var background = context.Background()

type redsyncLibrary struct {
	manager *redsync.Redsync
	options []redsync.Option
}

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLibrary) get(ctx context.Context, key string, ttl time.Duration, wait bool) (lock, error) {
	options := append([]redsync.Option{}, l.options...)
	if ttl > 0 {
		options = append(options, redsync.WithExpiry(ttl))
	}
	tries := 1
	if wait {
		tries = 1 << 30 // the context ends it
	}
	mutex := l.manager.NewMutex(key, append(options, redsync.WithTries(tries))...)
	err := mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return redsyncLock{mutex}, nil
}

func (l redsyncLock) release() error {
	ok, err := l.mutex.Unlock()
	if err == nil && !ok {
		err = errNotHeld
	}
	return err
}

func (l redsyncLock) extend(time.Duration) error {
	ok, err := l.mutex.Extend()
	if err == nil && !ok {
		err = errNotHeld
	}
	return err
}

func (l redsyncLock) owned() bool { return time.Now().Before(l.mutex.Until()) }

type bsmLibrary struct{ client *redislock.Client }

type bsmLock struct{ lock *redislock.Lock }

func (l bsmLibrary) get(ctx context.Context, key string, ttl time.Duration, wait bool) (lock, error) {
	options := &redislock.Options{}
	if wait {
		options.RetryStrategy = redislock.LinearBackoff(50 * time.Millisecond)
	}
	if ttl == 0 {
		ttl = 30 * time.Second
	}
	got, err := l.client.Obtain(ctx, key, ttl, options)
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return bsmLock{got}, nil
}

func (l bsmLock) release() error                 { return l.lock.Release(background) }
func (l bsmLock) extend(ttl time.Duration) error { return l.lock.Refresh(background, ttl, nil) }
func (l bsmLock) owned() bool {
	left, err := l.lock.TTL(background)
	return err == nil && left > 0
}

// It locks <prefix>:<0 to 2*majority-2>:<name> and renews by itself.
type rueidisLibrary struct{ locker rueidislock.Locker }

type rueidisLock struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newRueidis(address string, majority int32) (library, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{address}},
		KeyMajority:  majority,
	})
	return rueidisLibrary{locker}, err
}

func (l rueidisLibrary) get(ctx context.Context, key string, _ time.Duration, wait bool) (lock, error) {
	name, found := strings.CutPrefix(key, "rueidislock:0:")
	if !found {
		return nil, errors.New("the first key of this library begins with 'rueidislock:0:'")
	}
	take := l.locker.TryWithContext
	if wait {
		take = l.locker.WithContext
	}
	// What ends its context ends its lock, so the limit of the wait is taken off once it is had.
	own, cancel := context.WithCancel(background)
	stop := context.AfterFunc(ctx, cancel)
	got, release, err := take(own, name)
	if errors.Is(err, rueidislock.ErrNotLocked) || (err != nil && ctx.Err() != nil) {
		cancel()
		return nil, nil
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stop()
	return rueidisLock{got, func() { release(); cancel() }}, nil
}

func (l rueidisLock) release() error {
	lost := l.ctx.Err()
	l.cancel()
	return lost
}
func (l rueidisLock) extend(time.Duration) error { return errors.New("unsupported") }
func (l rueidisLock) owned() bool                { return l.ctx.Err() == nil }

type sampleLibrary struct{ client *redis.Client }

type sampleLock struct{ lock *redisLock }

func (l sampleLibrary) get(ctx context.Context, key string, ttl time.Duration, wait bool) (lock, error) {
	if ttl == 0 {
		ttl = 30 * time.Second
	}
	made := newRedisLock(l.client, key, ttl)
	take := made.tryLock
	if wait {
		take = made.lock
	}
	ok, err := take(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil || !ok {
		return nil, err
	}
	return sampleLock{made}, nil
}

func (l sampleLock) release() error                 { return l.lock.unlock(background) }
func (l sampleLock) extend(ttl time.Duration) error { return l.lock.renew(background, ttl) }
func (l sampleLock) owned() bool {
	value, err := l.lock.client.Get(background, l.lock.key).Result()
	return err == nil && value == l.lock.value
}

func newLibrary(kind string, plain *redis.Client) (library, error) {
	pool := goredis.NewPool(plain)
	switch kind {
	case "redsync":
		return redsyncLibrary{redsync.New(pool), nil}, nil
	case "redsync-setnx":
		return redsyncLibrary{redsync.New(pool), []redsync.Option{redsync.WithSetNXOnExtend()}}, nil
	case "bsm":
		return bsmLibrary{redislock.New(plain)}, nil
	case "rueidis1":
		return newRueidis(plain.Options().Addr, 1)
	case "rueidis":
		return newRueidis(plain.Options().Addr, 2)
	case "sample-go":
		return sampleLibrary{plain}, nil
	}
	return nil, fmt.Errorf("no such kind: %s", kind)
}
