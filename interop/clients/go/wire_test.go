package wire

// go test, with the URL of a server in WIRE_URL whose keys may be deleted.

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

func connect(t *testing.T, options ...Option) (*Client, *redis.Client) {
	t.Helper()
	url := os.Getenv("WIRE_URL")
	if url == "" {
		t.Skip("no server in WIRE_URL")
	}
	chosen, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(chosen)
	if err := rdb.FlushAll(background).Err(); err != nil {
		t.Fatal(err)
	}
	client := New(rdb, options...)
	t.Cleanup(func() {
		_ = client.Close(background)
		_ = rdb.Close()
	})
	return client, rdb
}

func must(t *testing.T, client *Client, options ...Option) *Lease {
	t.Helper()
	lease, err := client.Lock(background, "x", options...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func waiters(rdb *redis.Client) int64 { return rdb.ZCard(background, "{pawlock:x}:1:queue").Val() }

// What is on the server of the name, but the record of its fencing tokens.
func left(rdb *redis.Client) []string {
	var found []string
	for _, key := range rdb.Keys(background, "*").Val() {
		if key != "{pawlock:x}:fence" {
			found = append(found, key)
		}
	}
	return found
}

func is(t *testing.T, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("the error is %v, not %v", err, wanted)
	}
}

func TestLossCancelsWhatRunsUnderTheLease(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client, TTL(300*time.Millisecond))
	work, stop := lease.Context(background)
	defer stop()
	time.Sleep(time.Second)
	if work.Err() != nil || lease.Err() != nil {
		t.Fatal("it is not renewed", lease.Err())
	}
	rdb.Del(background, "pawlock:x")
	<-work.Done()
	is(t, context.Cause(work), ErrLost)
	is(t, lease.Err(), ErrLost)
	<-lease.Done()
	is(t, lease.Unlock(background), ErrLost)
	is(t, lease.Unlock(background), ErrLost)
}

func TestALeaseEndsWithItsTimeWhereTheServerIsGone(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client, TTL(400*time.Millisecond))
	_ = rdb.Close()
	<-lease.Done()
	is(t, lease.Err(), ErrLost)
}

func TestReleaseCancelsWhatRunsUnderTheLease(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client)
	work, stop := lease.Context(background)
	defer stop()
	if got := rdb.Get(background, "pawlock:x").Val(); got != lease.Token() {
		t.Fatal(got)
	}
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	<-work.Done()
	is(t, context.Cause(work), ErrReleased)
	is(t, lease.Unlock(background), ErrReleased)
	if found := left(rdb); found != nil {
		t.Fatal(found)
	}
}

// Looks at each command before it is sent.
type watching struct{ look func(cmd redis.Cmder) }

func (w watching) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w watching) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w watching) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.look(cmd)
		return next(ctx, cmd)
	}
}

func TestALeaseHasEndedBeforeItsReleaseIsSent(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client)
	work, stop := lease.Context(background)
	defer stop()
	sent := false
	rdb.AddHook(watching{func(cmd redis.Cmder) {
		if args := cmd.Args(); len(args) > 1 && (args[1] == leaveScript.Sha1 || args[1] == leaveScript.Source) {
			sent = true
			is(t, lease.Err(), ErrReleased)
			<-work.Done()
		}
	}})
	if err := lease.Unlock(background); err != nil || !sent {
		t.Fatal(err, sent)
	}
}

func TestGoroutinesTakeTurns(t *testing.T) {
	client, rdb := connect(t)
	var group sync.WaitGroup
	var counter int
	var fences []int64
	for range 20 {
		group.Go(func() {
			for range 10 {
				lease := must(t, client)
				counter++ // the race detector looks at it, too
				fences = append(fences, lease.Fence())
				if err := lease.Unlock(background); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for i := 1; i < len(fences); i++ {
		if fences[i] <= fences[i-1] {
			t.Fatal("a fence does not rise", fences[i-1:i+1])
		}
	}
	if counter != 200 || left(rdb) != nil {
		t.Fatal(counter, left(rdb))
	}
}

func TestCancellationReturnsTheCauseAndLeavesNothing(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(background)
	failed := make(chan error)
	go func() {
		_, err := client.Lock(ctx, "x")
		failed <- err
	}()
	until(t, "it queues", func() bool { return waiters(rdb) == 1 })
	cancel(why)
	is(t, <-failed, why)
	until(t, "it leaves the queue", func() bool { return waiters(rdb) == 0 })
	if err := lease.Unlock(background); err != nil {
		t.Fatal(err)
	}
	if found := left(rdb); found != nil {
		t.Fatal(found)
	}
	_, err := client.Lock(ctx, "x")
	is(t, err, why)
}

func TestCancellationsAtAnyMomentLeaveNothing(t *testing.T) {
	client, rdb := connect(t)
	var group sync.WaitGroup
	for number := range 200 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(background, time.Duration(number)*200*time.Microsecond)
			defer cancel()
			if lease, err := client.Lock(ctx, "x"); err == nil {
				_ = lease.Unlock(ctx) // goes on in the background
			}
		})
	}
	group.Wait()
	if err := client.Close(background); err != nil {
		t.Fatal(err)
	}
	for _, key := range left(rdb) {
		// Of what the server did not answer in time.
		if !strings.Contains(key, ":1:dead:") {
			t.Fatal(key)
		}
	}
}

func TestCloseReleasesAndEndsWaits(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client)
	failed := make(chan error)
	go func() {
		_, err := client.Lock(background, "x")
		failed <- err
	}()
	until(t, "it queues", func() bool { return waiters(rdb) == 1 })
	if err := client.Close(background); err != nil {
		t.Fatal(err)
	}
	is(t, <-failed, ErrClosed)
	is(t, lease.Err(), ErrReleased)
	if found := left(rdb); found != nil {
		t.Fatal(found)
	}
	_, err := client.Lock(background, "x")
	is(t, err, ErrClosed)
	_, err = client.TryLock(background, "x")
	is(t, err, ErrClosed)
}

func TestWhoDoesNotWait(t *testing.T) {
	client, _ := connect(t)
	lease := must(t, client)
	_, err := client.TryLock(background, "x")
	is(t, err, ErrHeld)
	_ = lease.Unlock(background)
	again, err := client.TryLock(background, "x")
	if err != nil || again.Fence() <= lease.Fence() {
		t.Fatal(err, again, lease.Fence())
	}
}

func TestAQueueThatIsFull(t *testing.T) {
	client, rdb := connect(t, MaxWaiters(1))
	lease := must(t, client)
	done := make(chan *Lease)
	go func() {
		waiting, _ := client.Lock(background, "x")
		done <- waiting
	}()
	until(t, "it queues", func() bool { return waiters(rdb) == 1 })
	_, err := client.Lock(background, "x")
	is(t, err, ErrQueueFull)
	_ = lease.Unlock(background)
	_ = (<-done).Unlock(background)
}

func TestTheFirstWaiterAsksWhenTheHoldersLeaseEnds(t *testing.T) {
	client, rdb := connect(t)
	rdb.Set(background, "pawlock:x", randomText()+"@elsewhere:1/main", 400*time.Millisecond)
	begin := time.Now()
	lease := must(t, client, TicketTTL(30*time.Second)) // by itself it would ask after 10 s
	if waited := time.Since(begin); waited > 5*time.Second {
		t.Fatal(waited)
	}
	_ = lease.Unlock(background)
}

func TestATicketThatIsGoneIsReplaced(t *testing.T) {
	client, rdb := connect(t)
	lease := must(t, client)
	done := make(chan *Lease)
	go func() { done <- must(t, client, TicketTTL(300*time.Millisecond)) }()
	until(t, "it queues", func() bool { return waiters(rdb) == 1 })
	before := rdb.ZRange(background, "{pawlock:x}:1:queue", 0, -1).Val()[0]
	rdb.Del(background, "{pawlock:x}:1:queue", "{pawlock:x}:1:tickets")
	until(t, "it queues again", func() bool { return waiters(rdb) == 1 })
	_ = lease.Unlock(background)
	second := <-done
	if second.Token() == before {
		t.Fatal("the same token")
	}
	_ = second.Unlock(background)
}

func TestAGrantWhoseFenceIsLostIsNotUsed(t *testing.T) {
	client, rdb := connect(t)
	must(t, client)
	done := make(chan *Lease)
	go func() { done <- must(t, client, TTL(2*time.Second)) }()
	until(t, "it queues", func() bool { return waiters(rdb) == 1 })
	// What a server that lost keys would be left with: granted, without a record.
	token := rdb.ZRange(background, "{pawlock:x}:1:queue", 0, -1).Val()[0]
	rdb.TxPipelined(background, func(pipe redis.Pipeliner) error {
		pipe.Set(background, "pawlock:x", token, 10*time.Second)
		pipe.Del(background, "{pawlock:x}:fence", "{pawlock:x}:1:queue", "{pawlock:x}:1:tickets")
		return nil
	})
	second := <-done
	if second.Fence() <= 0 || second.Token() == token {
		t.Fatal(second.Fence())
	}
	_ = second.Unlock(background)
}

func TestErrorsThatDoNotPass(t *testing.T) {
	client, rdb := connect(t, Patience(time.Minute))
	rdb.LPush(background, "pawlock:x", "a list")
	_, err := client.Lock(background, "x")
	if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Fatal(err)
	}
	rdb.FlushAll(background)
	rdb.HSet(background, "{pawlock:x}:fence", "v", "99", "last", "1")
	_, err = client.Lock(background, "x")
	var refusal redis.Error
	if !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Error(), "PAWLOCKWIRE") {
		t.Fatal(err)
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	client := New(rdb, Patience(300*time.Millisecond))
	_, err := client.Lock(background, "x")
	is(t, err, ErrUnavailable)
	_, err = client.TryLock(background, "x")
	is(t, err, ErrUnavailable)
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	_, err = client.Lock(ctx, "x")
	is(t, err, context.DeadlineExceeded)
}

// Of the names in docs/wire/names.json.
func TestKeysOfNames(t *testing.T) {
	text, err := os.ReadFile("../../../docs/wire/names.json")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no names.json of pawlock beside it")
	}
	var known struct {
		Token string
		Names []struct {
			Namespace, Name, Key string
			Helpers              map[string]string
		}
	}
	if err := json.Unmarshal(text, &known); err != nil || len(known.Names) == 0 {
		t.Fatal(err)
	}
	for _, one := range known.Names {
		key, err := keyOf(one.Namespace, one.Name)
		if key != one.Key || (err == nil) != (one.Key != "") {
			t.Errorf("the key of %q in %q is %q, not %q (%v)", one.Name, one.Namespace, key, one.Key, err)
		}
		if err != nil {
			continue
		}
		for i, helper := range []string{"fence", "1:queue", "1:tickets", "1:dead:" + known.Token} {
			if got := keysOf(key, known.Token)[i+1]; got != one.Helpers[helper] {
				t.Errorf("%s of %q is %q, not %q", helper, key, got, one.Helpers[helper])
			}
		}
	}
}

func TestSettingsThatCanNeverWork(t *testing.T) {
	client := New(redis.NewClient(&redis.Options{}))
	for _, option := range []Option{TTL(time.Millisecond), TTL(9000 * time.Hour), MaxWaiters(0), Patience(-1)} {
		if _, err := client.Lock(background, "x", option); err == nil {
			t.Fatal("no error")
		}
	}
	for _, name := range []string{"", strings.Repeat("x", 201), "\xff"} {
		if _, err := client.Lock(background, name); err == nil {
			t.Fatalf("no error for %q", name)
		}
	}
}
