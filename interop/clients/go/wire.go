// Package wire is a client of pawlock's locks for Go, of the wire protocol in docs/reference/wire.md: one queue, one order of
// fencing tokens and hand-offs by message, together with pawlock's own clients in Python.
//
//	client := wire.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
//	defer client.Close(context.Background())
//
//	lease, err := client.Lock(ctx, "order:42", wire.TTL(30*time.Second)) // ctx ends the wait
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(context.Background())
//	work, stop := lease.Context(ctx) // cancelled when the lease is lost; context.Cause says why
//	defer stop()
//	return charge(work, lease.Fence())
//
// It takes any client of go-redis: of one server, of Sentinels (redis.NewFailoverClient) or of a cluster. To use it, copy
// this file and scripts.json, which is a part of docs/wire/scripts.json.
package wire

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrHeld is returned by TryLock while another client holds or awaits the lock.
	ErrHeld = errors.New("wire: the lock is held by another client")
	// ErrQueueFull is returned by Lock if as many wait as MaxWaiters allows.
	ErrQueueFull = errors.New("wire: the queue is full")
	// ErrLost is why a lease ended that was not released; the error that wraps it says what happened.
	ErrLost = errors.New("wire: the lease is lost")
	// ErrReleased is why a lease ended that was released.
	ErrReleased = errors.New("wire: the lease is released")
	// ErrUnavailable is returned if the server did not answer for as long as Patience allows.
	ErrUnavailable = errors.New("wire: the server does not answer")
	// ErrClosed is returned by a client that is closed.
	ErrClosed = errors.New("wire: the client is closed")
)

const (
	wireVersion = "1"
	tombTTL     = time.Minute // longer than a request may be on its way
	maxText     = 200         // bytes of a name or a namespace
	driftFactor = 0.01
	driftFloor  = 2 * time.Millisecond
	driftedMost = 3
)

// ---- Settings

type settings struct {
	namespace, holder                  string
	ttl, ticketTTL, fenceTTL, patience time.Duration
	maxWaiters                         int
}

// Option is a setting of a client, or of one lock.
type Option func(*settings)

// Namespace is what the keys of the client's locks begin with; by default "pawlock". Without one (""), a name is its key.
func Namespace(namespace string) Option { return func(s *settings) { s.namespace = namespace } }

// Holder is the public name that others see of a holder, without white space; by default host:pid/go.
func Holder(holder string) Option { return func(s *settings) { s.holder = holder } }

// TTL is how long the server keeps a lease that is not renewed; by default 30 s. It is renewed every third of it.
func TTL(ttl time.Duration) Option { return func(s *settings) { s.ttl = ttl } }

// TicketTTL is how long the server keeps the place of a waiter that is not renewed; by default 3 s, and at most the TTL.
func TicketTTL(ttl time.Duration) Option { return func(s *settings) { s.ticketTTL = ttl } }

// FenceTTL is how long the server keeps the record of fencing tokens after its last use; by default an hour.
func FenceTTL(ttl time.Duration) Option { return func(s *settings) { s.fenceTTL = ttl } }

// MaxWaiters is how long the queue may be; by default 10000.
func MaxWaiters(waiters int) Option { return func(s *settings) { s.maxWaiters = waiters } }

// Patience is how long Lock and Unlock go on while the server does not answer; by default 10 s.
func Patience(patience time.Duration) Option { return func(s *settings) { s.patience = patience } }

func (s *settings) check() error {
	if s.ttl < 50*time.Millisecond || s.ttl > 366*24*time.Hour {
		return fmt.Errorf("wire: a TTL must be 50 ms to 366 days, not %v", s.ttl)
	}
	if s.ticketTTL < 0 || s.fenceTTL < 0 || s.patience < 0 || s.maxWaiters < 1 {
		return errors.New("wire: a setting is negative")
	}
	if s.ticketTTL == 0 || s.ticketTTL > s.ttl {
		s.ticketTTL = min(3*time.Second, s.ttl)
	}
	return nil
}

// Patience of one request: a third of the shorter life, so that two tries fit into it.
func (s *settings) requestTimeout() time.Duration { return min(time.Second, s.ticketTTL/3) }

// ---- Scripts

//go:embed scripts.json
var manifest []byte

type script struct{ Sha1, Source string }

var acquireScript, renewScript, leaveScript = loadScripts()

func loadScripts() (acquire, renew, leave script) {
	var found struct {
		Wire    string
		Scripts map[string]script
	}
	if err := json.Unmarshal(manifest, &found); err != nil || found.Wire != wireVersion {
		panic(fmt.Sprintf("wire: scripts.json is not of wire version %s: %v", wireVersion, err))
	}
	return found.Scripts["mutex/acquire"], found.Scripts["mutex/renew"], found.Scripts["mutex/leave"]
}

// ---- Keys and tokens

var (
	unseen    = regexp.MustCompile(`[\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]`)
	inName    = regexp.MustCompile(`[%{}\x00-\x1f\x7f-\x{9f}\x{2028}\x{2029}]`)
	inSpace   = regexp.MustCompile(`[%{}:\x00-\x20\x7f-\x{9f}\x{2028}\x{2029}*?\[\]]`)
	tagged    = regexp.MustCompile(`^[^{}]*\{[^{}]+\}[^{}]*$`)
	reserved  = regexp.MustCompile(`(?:^\{.*\}|:pawlock):(?:fence$|\d+:)`)
	notPublic = regexp.MustCompile(`[^\w.\-#:/]`)
	braces    = strings.NewReplacer("{", "", "}", "")
)

func escape(match string) string {
	var out strings.Builder
	for _, b := range []byte(match) {
		fmt.Fprintf(&out, "%%%02X", b)
	}
	return out.String()
}

func keyOf(namespace, name string) (string, error) {
	switch {
	case name == "" || len(name) > maxText || !utf8.ValidString(name):
		return "", fmt.Errorf("wire: a name must be 1 to %d bytes of UTF-8", maxText)
	case len(namespace) > maxText || !utf8.ValidString(namespace):
		return "", fmt.Errorf("wire: a namespace must be at most %d bytes of UTF-8", maxText)
	case unseen.MatchString(namespace) || namespace != strings.TrimSpace(namespace):
		return "", fmt.Errorf("wire: the namespace %q has control characters, or blanks at its ends", namespace)
	case namespace != "":
		return inSpace.ReplaceAllStringFunc(namespace, escape) + ":" + inName.ReplaceAllStringFunc(name, escape), nil
	case reserved.MatchString(name):
		return "", fmt.Errorf("wire: %q looks like a helper key", name)
	}
	bare := name
	if tagged.MatchString(name) {
		bare = braces.Replace(name)
	}
	if inName.MatchString(bare) {
		return "", fmt.Errorf("wire: %q would have to be escaped, which needs a namespace", name)
	}
	return name, nil
}

// The keys of one token of one name, in the order of acquire and leave.
func keysOf(key, token string) []string {
	before := "{" + key + "}:"
	if strings.Contains(key, "{") {
		before = key + ":pawlock:"
	}
	keys := []string{key}
	for _, helper := range []string{"fence", "1:queue", "1:tickets", "1:dead:" + token} {
		keys = append(keys, before+helper)
	}
	return keys
}

func randomText() string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random)
}

// ---- The client

// Client locks names on one server. It is safe for concurrent use.
type Client struct {
	rdb      redis.UniversalClient
	defaults settings
	channel  string
	requests atomic.Int64

	listening  sync.Once
	subscribed chan struct{} // closed once the server has confirmed the subscription

	mu      sync.Mutex
	pubsub  *redis.PubSub
	waiters map[string]chan struct{} // by token: rung when something was said of it
	leases  map[*Lease]struct{}
	closed  bool
	work    sync.WaitGroup // calls, leases, and what is withdrawn in the background
}

// New returns a client on top of rdb, which stays the caller's.
func New(rdb redis.UniversalClient, options ...Option) *Client {
	host, _ := os.Hostname()
	c := &Client{
		rdb: rdb,
		defaults: settings{
			namespace: "pawlock", holder: fmt.Sprintf("%s:%d/go", host, os.Getpid()),
			ttl: 30 * time.Second, fenceTTL: time.Hour, patience: 10 * time.Second, maxWaiters: 10_000,
		},
		subscribed: make(chan struct{}),
		waiters:    map[string]chan struct{}{},
		leases:     map[*Lease]struct{}{},
	}
	for _, option := range options {
		option(&c.defaults)
	}
	space := inSpace.ReplaceAllStringFunc(c.defaults.namespace, escape)
	if space == "" {
		space = "pawlock"
	}
	c.channel = space + ":wake:" + randomText()
	return c
}

// Close releases what is held, waits until nothing of this client is left on the server or ctx is done, and ends it.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	leases := make([]*Lease, 0, len(c.leases))
	for lease := range c.leases {
		leases = append(leases, lease)
	}
	for _, bell := range c.waiters {
		ring(bell)
	}
	c.mu.Unlock()
	var failed error
	for _, lease := range leases {
		if err := lease.Unlock(ctx); err != nil && !errors.Is(err, ErrReleased) {
			failed = errors.Join(failed, err)
		}
	}
	done := make(chan struct{})
	go func() { c.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		failed = errors.Join(failed, context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pubsub != nil {
		_ = c.pubsub.Close()
		c.pubsub = nil
	}
	return failed
}

// listen subscribes to the client's own channel, once, and again whenever the connection is lost.
func (c *Client) listen() {
	pubsub := c.rdb.Subscribe(context.Background(), c.channel)
	c.mu.Lock()
	c.pubsub = pubsub
	closed := c.closed
	c.mu.Unlock()
	if closed {
		_ = pubsub.Close()
		return
	}
	confirmed := false
	for told := range pubsub.ChannelWithSubscriptions() {
		switch told := told.(type) {
		case *redis.Subscription:
			if !confirmed {
				confirmed = true
				close(c.subscribed)
			}
			// What was said meanwhile is lost: everybody asks.
			c.mu.Lock()
			for _, bell := range c.waiters {
				ring(bell)
			}
			c.mu.Unlock()
		case *redis.Message:
			token, _, _ := strings.Cut(told.Payload, " ")
			c.mu.Lock()
			if bell := c.waiters[token]; bell != nil {
				ring(bell)
			}
			c.mu.Unlock()
		}
	}
}

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it rings already
	}
}

// ---- Requests

// A command that go-redis sends once. It would send it again without a word, and whether an earlier copy may still be on its
// way decides how a token is left.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

type answer struct {
	reply []any
	err   error
}

// A token's life on the server: what was asked for it. It is used by one goroutine at a time.
type token struct {
	client     *Client
	settings   settings
	name       string
	text       string
	keys       []string
	sent       bool          // the server may know it
	unanswered bool          // an acquire may still be on its way, and have to be barred
	pending    <-chan answer // of the acquire that its caller did not wait for
}

func (c *Client) newToken(name string, options []Option) (*token, error) {
	chosen := c.defaults
	for _, option := range options {
		option(&chosen)
	}
	if err := chosen.check(); err != nil {
		return nil, err
	}
	key, err := keyOf(chosen.namespace, name)
	if err != nil {
		return nil, err
	}
	t := &token{client: c, settings: chosen, name: name}
	t.renewed(key)
	return t, nil
}

// renewed begins with a new text: one that was left or was found dead is never used again.
func (t *token) renewed(key string) {
	t.text = randomText() + "@" + notPublic.ReplaceAllString(t.settings.holder, "_")
	t.keys, t.sent, t.unanswered, t.pending = keysOf(key, t.text), false, false, nil
}

// another is a new token for the same name.
func (t *token) another() *token {
	other := &token{client: t.client, settings: t.settings, name: t.name}
	other.renewed(t.keys[0])
	return other
}

// ask sends one request and waits for its reply, until ctx is done or the time for one request is over.
func (t *token) ask(ctx context.Context, which script, keys []string, args ...any) (reply []any, sent time.Time, err error) {
	if ctx.Err() != nil {
		return nil, sent, context.Cause(ctx)
	}
	rid := strconv.FormatInt(t.client.requests.Add(1), 10)
	args = append(args, rid)
	answered := make(chan answer, 1)
	sent = time.Now()
	go func() {
		found, err := t.client.eval(which, keys, args)
		if err == nil && (len(found) < 2 || found[1] != rid) {
			err = fmt.Errorf("the reply %v is not to request %s", found, rid)
		}
		answered <- answer{found, err}
	}()
	timer := time.NewTimer(t.settings.requestTimeout())
	defer timer.Stop()
	select {
	case found := <-answered:
		return found.reply, sent, found.err
	case <-timer.C:
		return nil, sent, errNoReply
	case <-ctx.Done():
		t.pending = answered
		return nil, sent, context.Cause(ctx)
	}
}

var errNoReply = errors.New("no reply in time")

func (c *Client) eval(which script, keys []string, args []any) ([]any, error) {
	send := func(words ...any) ([]any, error) {
		words = append(words, len(keys))
		for _, key := range keys {
			words = append(words, key)
		}
		cmd := once{redis.NewCmd(context.Background(), append(words, args...)...)}
		cmd.SetFirstKeyPos(3)
		_ = c.rdb.Process(context.Background(), cmd)
		return cmd.Slice()
	}
	found, err := send("evalsha", which.Sha1)
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		found, err = send("eval", which.Source)
	}
	return found, err
}

// mayHaveRun tells whether a request that failed may have been carried out, or may yet be.
func mayHaveRun(err error) bool {
	var refusal redis.Error
	var dialling *net.OpError
	switch {
	case err == nil, errors.As(err, &refusal):
		return false
	case errors.As(err, &dialling):
		return dialling.Op != "dial"
	}
	return true
}

// passes tells whether it makes sense to ask again: there was no answer, or the server cannot answer now.
func passes(err error) bool {
	var refusal redis.Error
	if !errors.As(err, &refusal) {
		return !errors.Is(err, redis.ErrClosed)
	}
	word, _, _ := strings.Cut(refusal.Error(), " ")
	switch word {
	case "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF", "OOM":
		return true
	}
	return strings.Contains(refusal.Error(), "max number of clients")
}

// trouble counts how long the server has failed to answer.
type trouble struct {
	since    time.Time
	attempts int
}

// bear rests before the next try, or says why there is none.
func (f *trouble) bear(ctx context.Context, patience time.Duration, why error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if !passes(why) {
		return why
	}
	if f.attempts++; f.attempts == 1 {
		f.since = time.Now()
	}
	if time.Since(f.since) > patience {
		return fmt.Errorf("%w: %w", ErrUnavailable, why)
	}
	most := min(time.Second, 20*time.Millisecond<<min(f.attempts, 6))
	return pause(ctx, mathrand.N(most))
}

func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func milliseconds(length time.Duration) int64 { return int64(math.Ceil(float64(length) / 1e6)) }

// validUntil is when a lease ends of which the server said what is left, counted from before it was asked.
func validUntil(sent time.Time, leftMs int64, asked time.Duration) time.Time {
	left := min(time.Duration(leftMs)*time.Millisecond, asked)
	return sent.Add(left - time.Duration(float64(left)*driftFactor) - driftFloor)
}

func (t *token) acquire(ctx context.Context, mode int, channel string) ([]any, time.Time, error) {
	s := t.settings
	reply, sent, err := t.ask(ctx, acquireScript, t.keys, t.text, milliseconds(s.ttl), milliseconds(s.ticketTTL), mode, 1, channel,
		s.maxWaiters, milliseconds(s.fenceTTL))
	if !sent.IsZero() {
		t.sent = true
		t.unanswered = t.unanswered || (t.pending == nil && mayHaveRun(err))
	}
	return reply, sent, err
}

func (t *token) renew(ctx context.Context, channel string) ([]any, time.Time, error) {
	s := t.settings
	reply, sent, err := t.ask(ctx, renewScript, t.keys[:4], t.text, milliseconds(s.ttl), milliseconds(s.ticketTTL), channel,
		milliseconds(s.fenceTTL))
	t.pending = nil // a late copy brings nothing back
	return reply, sent, err
}

func (t *token) leave(ctx context.Context) ([]any, error) {
	tomb := time.Duration(0)
	if t.unanswered {
		tomb = tombTTL
	}
	reply, _, err := t.ask(ctx, leaveScript, t.keys, t.text, milliseconds(tomb), 0, milliseconds(t.settings.fenceTTL))
	t.pending = nil
	return reply, err
}

// withdraw removes in the background whatever the server has of a token, which nobody may use any more.
func (t *token) withdraw() {
	if !t.sent {
		return
	}
	t.client.work.Add(1) // the caller is counted, too
	go func() {
		defer t.client.work.Done()
		// A request that is answered first needs no tombstone.
		if t.pending != nil {
			select {
			case found := <-t.pending:
				t.unanswered = t.unanswered || mayHaveRun(found.err)
			case <-time.After(t.settings.requestTimeout()):
				t.unanswered = true
			}
			t.pending = nil
		}
		// After that the server has forgotten it.
		ctx, cancel := context.WithTimeout(context.Background(), max(t.settings.ttl, t.settings.patience))
		defer cancel()
		var failed trouble
		for {
			_, err := t.leave(ctx)
			if err == nil || failed.bear(ctx, t.settings.ttl+t.settings.patience, err) != nil {
				return
			}
		}
	}()
}

// ---- Acquiring

// TryLock takes the lock of a name if it is free; otherwise it returns ErrHeld at once.
func (c *Client) TryLock(ctx context.Context, name string, options ...Option) (*Lease, error) {
	return c.take(ctx, name, options, nil)
}

// Lock takes the lock of a name, and waits in the queue while another client has it. Once ctx is done it leaves the queue, in
// the background, and returns the cause; ctx has no effect on the lease.
func (c *Client) Lock(ctx context.Context, name string, options ...Option) (*Lease, error) {
	return c.take(ctx, name, options, make(chan struct{}, 1))
}

// take goes on with one token after the other until one holds the lock. A nil bell: it does not wait.
func (c *Client) take(ctx context.Context, name string, options []Option, bell chan struct{}) (*Lease, error) {
	t, err := c.newToken(name, options)
	if err != nil {
		return nil, err
	}
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.work.Done()
	if bell != nil {
		if err := c.listens(ctx, t.settings.patience); err != nil {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
	}
	for {
		c.awaits(t.text, bell)
		lease, err := t.win(ctx, bell)
		c.awaits(t.text, nil)
		if err == nil {
			return lease, nil
		}
		t.withdraw()
		if !errors.Is(err, errDead) {
			return nil, fmt.Errorf("lock %q: %w", name, err)
		}
		// The server dropped its ticket, or lost it.
		t = t.another()
	}
}

// begin counts a piece of work, unless the client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.work.Add(1)
	}
	return !c.closed
}

// listens waits until the server has confirmed the subscription: what is said before that is not heard.
func (c *Client) listens(ctx context.Context, patience time.Duration) error {
	c.listening.Do(func() { go c.listen() })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.subscribed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%w: it did not confirm the subscription", ErrUnavailable)
	}
}

func (c *Client) awaits(token string, bell chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bell == nil {
		delete(c.waiters, token)
	} else {
		c.waiters[token] = bell
	}
}

// Its token holds and waits for nothing, and must not be used again.
var errDead = errors.New("the token is dead")

// win asks until the token holds the lock.
func (t *token) win(ctx context.Context, bell <-chan struct{}) (*Lease, error) {
	mode, channel := 0, ""
	if bell != nil {
		mode, channel = 1, t.client.channel
	}
	queued, drifted := false, 0
	var failed trouble
	for {
		if t.client.isClosed() {
			return nil, ErrClosed
		}
		var reply []any
		var sent time.Time
		var err error
		if queued || drifted > 0 {
			reply, sent, err = t.renew(ctx, channel)
		} else {
			reply, sent, err = t.acquire(ctx, mode, channel)
		}
		if err != nil {
			if err := failed.bear(ctx, t.settings.patience, err); err != nil {
				return nil, err
			}
			continue
		}
		failed = trouble{}
		switch reply[0] {
		case "H":
			fence, left := reply[2].(int64), reply[3].(int64)
			if fence <= 0 {
				return nil, errDead // the server lost the record of the fencing tokens since it granted the lock
			}
			valid := validUntil(sent, left, t.settings.ttl)
			// It was granted to the ticket, or to an earlier copy of the request: raised to the whole TTL once.
			short := left < milliseconds(t.settings.ttl) && drifted == 0
			if !short && time.Now().Before(valid) {
				return t.granted(fence, valid)
			}
			if drifted++; drifted > driftedMost {
				return nil, fmt.Errorf("%d grants in a row had expired when they arrived", driftedMost)
			}
		case "Q":
			queued = true
			if err := t.await(ctx, bell, reply[2].(int64), reply[3].(int64), reply[6].(int64) == 1); err != nil {
				return nil, err
			}
		case "B":
			if !t.unanswered {
				t.sent = false // nothing of it is there
			}
			return nil, ErrHeld
		case "F":
			return nil, fmt.Errorf("%w: %v wait", ErrQueueFull, reply[2])
		case "U", "X":
			return nil, errDead
		default:
			return nil, fmt.Errorf("a reply that is not of pawlock: %v", reply)
		}
	}
}

// await sleeps until it is time to ask again: a message names the token, a third of the ticket's life is over, or, for the
// first in the queue, the holder's lease ends.
func (t *token) await(ctx context.Context, bell <-chan struct{}, rank, holderMs int64, foreign bool) error {
	length := t.settings.ticketTTL / 3
	if rank == 0 && foreign {
		length = min(length, 50*time.Millisecond+mathrand.N(50*time.Millisecond))
	}
	if rank == 0 && holderMs >= 0 {
		length = min(length, time.Duration(holderMs+1)*time.Millisecond)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-bell:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// ---- The lease

// Lease is a lock that is held. It is renewed in the background until it is released or lost.
type Lease struct {
	token *token // used by one goroutine at a time
	fence int64
	ctx   context.Context
	end   context.CancelCauseFunc

	mu    sync.Mutex
	valid time.Time

	ending   sync.Once
	renewing context.CancelFunc
	renewed  chan struct{} // closed when the renewal has ended
}

func (t *token) granted(fence int64, valid time.Time) (*Lease, error) {
	l := &Lease{token: t, fence: fence, valid: valid, renewed: make(chan struct{})}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	var ctx context.Context
	ctx, l.renewing = context.WithCancel(context.Background())
	c := t.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.leases[l] = struct{}{}
	c.work.Add(1)
	go l.keep(ctx)
	return l, nil
}

// Fence is the fencing token: larger than that of every earlier lease of the name.
func (l *Lease) Fence() int64 { return l.fence }

// Name is what is locked.
func (l *Lease) Name() string { return l.token.name }

// Token is the value of the lock's key.
func (l *Lease) Token() string { return l.token.text }

// ValidUntil is when the lease ends if it is not renewed until then.
func (l *Lease) ValidUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.valid
}

// Done is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err is nil while the lease is held; then it wraps ErrLost or ErrReleased. It looks at the clock, so it is right even where
// the program has just been stopped for a while.
func (l *Lease) Err() error {
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	if !time.Now().Before(l.ValidUntil()) {
		l.end(fmt.Errorf("%w: it expired before it could be renewed", ErrLost))
	}
	return context.Cause(l.ctx)
}

// Context returns a copy of parent that is cancelled when the lease is lost or released; context.Cause then returns Err.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// keep renews the lease every third of its TTL, until it is lost or ctx is done.
func (l *Lease) keep(ctx context.Context) {
	defer close(l.renewed)
	t := l.token
	every := t.settings.ttl / 3
	next := time.Now().Add(every)
	for attempts := 0; ; {
		if pause(ctx, time.Until(soonest(next, l.ValidUntil()))) != nil {
			return
		}
		if l.Err() != nil {
			l.lost()
			return
		}
		until, cancel := context.WithDeadline(ctx, l.ValidUntil())
		reply, sent, err := t.renew(until, "")
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case l.Err() != nil: // after its end no reply counts
			l.lost()
			return
		case err != nil && passes(err):
			attempts++
			next = time.Now().Add(mathrand.N(min(time.Second, every/4, 20*time.Millisecond<<min(attempts, 6))))
		case err != nil:
			l.end(fmt.Errorf("%w: %w", ErrLost, err))
			l.lost()
			return
		case reply[0] != "H":
			l.end(fmt.Errorf("%w: the server says %v", ErrLost, reply[2:]))
			l.lost()
			return
		default:
			attempts, next = 0, sent.Add(every)
			l.mu.Lock()
			l.valid = validUntil(sent, reply[3].(int64), t.settings.ttl)
			l.mu.Unlock()
		}
	}
}

func soonest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// lost leaves the token, which may hold the lock for longer than the lease is valid.
func (l *Lease) lost() {
	l.ending.Do(func() {
		l.token.withdraw()
		l.forget()
	})
}

func (l *Lease) forget() {
	c := l.token.client
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, l)
	c.work.Done()
}

// Unlock ends the lease, and then releases the lock. It returns ErrLost if the lease was lost before, and ErrReleased if it
// was released before. If ctx is done first it returns the cause, and the release goes on in the background.
func (l *Lease) Unlock(ctx context.Context) error {
	l.renewing()
	<-l.renewed // the token is free for this goroutine
	if err := l.Err(); err != nil {
		if !errors.Is(err, ErrReleased) {
			l.lost()
		}
		return err
	}
	err := ErrReleased
	l.ending.Do(func() {
		err = l.release(ctx)
		l.forget()
	})
	return err
}

func (l *Lease) release(ctx context.Context) error {
	l.end(ErrReleased) // before another can have it
	t, unanswered := l.token, false
	var failed trouble
	for {
		reply, err := t.leave(ctx)
		if err != nil {
			unanswered = unanswered || mayHaveRun(err)
			if err := failed.bear(ctx, t.settings.patience, err); err != nil {
				t.withdraw()
				return fmt.Errorf("unlock %q: %w", t.name, err)
			}
			continue
		}
		// An earlier copy has released it, unless an operator took it.
		earlier := unanswered && reply[0] == "A" && reply[3] == int64(0) && time.Now().Before(l.ValidUntil())
		if reply[0] != "R" && !earlier {
			return fmt.Errorf("%w: the server says %v", ErrLost, reply[2:])
		}
		return nil
	}
}
