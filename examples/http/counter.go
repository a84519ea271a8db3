// go run counter.go URL NAME FILE ROUNDS: add 1 to the number in FILE, ROUNDS times, each time under the lock NAME.
// The token comes from $PAWLOCK_TOKEN. Needs Go 1.19 or later and its standard library alone.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var errLost = errors.New("the lock is lost")

type pawlock struct{ url, token string }

type reply struct {
	Token  string `json:"token"`
	Fence  int64  `json:"fence"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	status int
}

// ask sends the same request again, under the same key, until some instance has answered it.
func (p pawlock) ask(ctx context.Context, name, verb string, body map[string]any) (told reply, err error) {
	random := make([]byte, 16)
	if _, err = rand.Read(random); err != nil {
		return told, err
	}
	text, _ := json.Marshal(body)
	path := p.url + "/v1/ns/pawlock/lock/" + url.PathEscape(name) + "/" + verb
	for attempt := 0; attempt < 40; attempt++ {
		request, _ := http.NewRequestWithContext(ctx, "POST", path, bytes.NewReader(text))
		request.Header.Set("Authorization", "Bearer "+p.token)
		request.Header.Set("Idempotency-Key", hex.EncodeToString(random))
		response, failed := http.DefaultClient.Do(request)
		if err = failed; err == nil {
			told.status = response.StatusCode
			err = json.NewDecoder(response.Body).Decode(&told)
			response.Body.Close()
			if err == nil && told.status != 429 && told.status != 503 {
				return told, nil
			}
		}
		select {
		case <-ctx.Done():
			return told, ctx.Err()
		case <-time.After(time.Duration(100+10*attempt) * time.Millisecond):
		}
	}
	return told, fmt.Errorf("no answer: %d %v", told.status, err)
}

// locked runs work under the lock. Its context is cancelled when the lock is lost, and errLost returned.
func (p pawlock) locked(ctx context.Context, name string, ttl time.Duration, work func(context.Context, int64) error) error {
	var grant reply
	var asked time.Time
	for grant.status == 0 || grant.status == http.StatusLocked {
		var err error
		asked = time.Now()
		if grant, err = p.ask(ctx, name, "acquire", map[string]any{"ttl": ttl.Seconds(), "wait": 60}); err != nil {
			return err
		}
	}
	if grant.status != http.StatusOK {
		return fmt.Errorf("%s: %s", grant.Code, grant.Detail)
	}
	held, end := context.WithCancel(ctx)
	var lost atomic.Bool
	renewing := make(chan struct{})
	go func() { // until the work is done, the lock is lost, or nobody answered in time
		defer close(renewing)
		until := asked.Add(ttl * 99 / 100) // from before the request was sent: the server counts from later
		for {
			select {
			case <-held.Done():
				return
			case <-time.After(ttl / 3):
			}
			before := time.Now()
			limit, cancel := context.WithDeadline(held, until)
			told, err := p.ask(limit, name, "renew", map[string]any{"token": grant.Token, "ttl": ttl.Seconds()})
			cancel()
			if held.Err() == nil && (err != nil || told.status != http.StatusOK) {
				lost.Store(true)
				end()
				return
			}
			until = before.Add(ttl * 99 / 100)
		}
	}()
	err := work(held, grant.Fence)
	if lost.Load() {
		err = errLost
	}
	end()
	<-renewing
	if _, failed := p.ask(ctx, name, "release", map[string]any{"token": grant.Token}); err == nil {
		err = failed
	}
	return err
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "counter URL NAME FILE ROUNDS")
		os.Exit(64)
	}
	server, name, file := pawlock{os.Args[1], os.Getenv("PAWLOCK_TOKEN")}, os.Args[2], os.Args[3]
	rounds, _ := strconv.Atoi(os.Args[4])
	for round := 0; round < rounds; round++ {
		err := server.locked(context.Background(), name, 5*time.Second, func(ctx context.Context, fence int64) error {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			number, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond) // without the lock, others would read the same number
			if err := ctx.Err(); err != nil {
				return err
			}
			fmt.Println(fence)
			return os.WriteFile(file, []byte(strconv.Itoa(number+1)+"\n"), 0o644)
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
