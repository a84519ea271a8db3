package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"pawlock.example/wire"
)

// pawlock's own protocol: the key of a name begins with the namespace.
type wireLibrary struct{ client *wire.Client }

type wireLock struct{ lease *wire.Lease }

func (l wireLibrary) get(ctx context.Context, key string, ttl time.Duration, wait bool) (lock, error) {
	name, found := strings.CutPrefix(key, "pawlock:")
	if !found {
		return nil, errors.New("the keys of this library begin with 'pawlock:'")
	}
	take, options := l.client.TryLock, []wire.Option{}
	if wait {
		take = l.client.Lock
	}
	if ttl > 0 {
		options = append(options, wire.TTL(ttl))
	}
	lease, err := take(ctx, name, options...)
	if errors.Is(err, wire.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return wireLock{lease}, nil
}

func (l wireLock) release() error             { return l.lease.Unlock(background) }
func (l wireLock) extend(time.Duration) error { return errors.New("unsupported") }
func (l wireLock) owned() bool                { return l.lease.Err() == nil }
func (l wireLock) about() (int64, time.Time)  { return l.lease.Fence(), l.lease.ValidUntil() }

// anyClient connects to one server, to Sentinels or to a cluster, as the scheme of the URL says.
func anyClient(url string) (redis.UniversalClient, error) {
	if rest, found := strings.CutPrefix(url, "redis+sentinel://"); found {
		hosts, service, found := strings.Cut(rest, "/")
		if !found {
			return nil, fmt.Errorf("%s names no service", url)
		}
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: service, SentinelAddrs: strings.Split(hosts, ",")}), nil
	}
	if rest, found := strings.CutPrefix(url, "redis+cluster://"); found {
		hosts, _, _ := strings.Cut(rest, "/")
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(hosts, ",")}), nil
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}
