// A client of pawlock's wire protocol, written from docs/reference/wire.md alone:
//
//	wire SOCKET SCRIPTS hold NAME TTL_MS   acquire, say "held FENCE" or "waiting RANK", release at the next line of input
//
// After a hand-off it says "told" (by a message) or "asked" (its own question found out), then "held FENCE".
package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ---- RESP2

type conn struct {
	net.Conn
	in *bufio.Reader
}

func dial(path string) *conn {
	to, err := net.Dial("unix", path)
	check(err)
	return &conn{to, bufio.NewReader(to)}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c *conn) send(args ...string) {
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := c.Write([]byte(out.String()))
	check(err)
}

func (c *conn) read() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	switch line[0] {
	case '+':
		return line[1:], nil
	case '-':
		return nil, fmt.Errorf("%s", line[1:])
	case ':':
		number, err := strconv.ParseInt(line[1:], 10, 64)
		return number, err
	}
	size, err := strconv.Atoi(line[1:])
	if err != nil || size < 0 {
		return nil, err
	}
	if line[0] == '*' {
		found := make([]any, size)
		for i := range found {
			if found[i], err = c.read(); err != nil {
				return nil, err
			}
		}
		return found, nil
	}
	text := make([]byte, size+2)
	for n := 0; n < len(text); {
		more, err := c.in.Read(text[n:])
		if err != nil {
			return nil, err
		}
		n += more
	}
	return string(text[:size]), nil
}

// ---- scripts, names and tokens, as the page says

var include = regexp.MustCompile(`(?m)^--@include (?:(\w+)\.)?(\w+)$`)

func text(root, folder, name string) string {
	path := filepath.Join(root, folder, name+".lua")
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(root, name+".lua")
	}
	source, err := os.ReadFile(path)
	check(err)
	return include.ReplaceAllStringFunc(string(source), func(line string) string {
		part := include.FindStringSubmatch(line)
		if part[1] != "" {
			return text(root, part[1], part[2])
		}
		return text(root, folder, part[2])
	})
}

func key(namespace, name string) string {
	var out strings.Builder
	for _, r := range name {
		if strings.ContainsRune("%{}\u2028\u2029", r) || r < 0x20 || (r >= 0x7f && r < 0xa0) {
			for _, b := range []byte(string(r)) {
				fmt.Fprintf(&out, "%%%02X", b)
			}
		} else {
			out.WriteRune(r)
		}
	}
	return namespace + ":" + out.String()
}

func random() string {
	bits := make([]byte, 16)
	_, err := rand.Read(bits)
	check(err)
	return hex.EncodeToString(bits)
}

type client struct {
	*conn
	root, name, token string
	requests          int
}

func (c *client) run(script string, keys []string, args ...string) []any {
	c.requests++
	id := strconv.Itoa(c.requests)
	source := text(c.root, "", "_prelude") + "\n" + text(c.root, "mutex", script)
	sum := sha1.Sum([]byte(source))
	rest := append([]string{strconv.Itoa(len(keys))}, keys...)
	rest = append(append(rest, args...), id)
	c.send(append([]string{"EVALSHA", hex.EncodeToString(sum[:])}, rest...)...)
	found, err := c.read()
	if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
		c.send(append([]string{"EVAL", source}, rest...)...)
		found, err = c.read()
	}
	check(err)
	reply := found.([]any)
	if reply[1] != id {
		check(fmt.Errorf("the reply is to %v, asked was %s", reply[1], id))
	}
	return reply
}

func (c *client) keys(which ...string) []string {
	all := map[string]string{
		"name": c.name, "fence": "{" + c.name + "}:fence", "queue": "{" + c.name + "}:1:queue",
		"tickets": "{" + c.name + "}:1:tickets", "dead": "{" + c.name + "}:1:dead:" + c.token, "holds": "{" + c.name + "}:1:holds",
	}
	found := make([]string, len(which))
	for i, one := range which {
		found[i] = all[one]
	}
	return found
}

func main() {
	socket, root, name, ttl := os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	me := &client{conn: dial(socket), root: root, name: key("pawlock", name), token: random() + "@elsewhere:1/go"}

	// 1. Listen first.
	ear, channel := dial(socket), "pawlock:wake:"+random()
	ear.send("SUBSCRIBE", channel)
	_, err := ear.read()
	check(err)
	heard := make(chan []string)
	go func() {
		for {
			told, err := ear.read()
			check(err)
			heard <- strings.Fields(told.([]any)[2].(string))
		}
	}()

	const ticket = 3000
	const fenceTTL = "86400000"
	ticketText := strconv.Itoa(ticket)
	six := me.keys("name", "fence", "queue", "tickets", "dead", "holds")
	five := me.keys("name", "fence", "queue", "tickets", "holds")
	reply := me.run("acquire", six, me.token, ttl, ticketText, "1", "1", channel, "10000", fenceTTL)
	if reply[0] == "Q" {
		fmt.Println("waiting", reply[2])
		how := ""
		for reply[0] == "Q" { // 3., 4. and 5.
			own := reply[4].(int64)
			how = "asked"
			select {
			case words := <-heard:
				expiry, _ := strconv.ParseInt(words[2], 10, 64)
				if words[0] != me.token || expiry < own {
					continue
				}
				how = "told"
			case <-time.After(ticket / 3 * time.Millisecond):
			}
			reply = me.run("renew", five, me.token, ttl, ticketText, "", fenceTTL)
		}
		fmt.Println(how)
	}
	if reply[0] != "H" {
		check(fmt.Errorf("not held: %v", reply))
	}
	fmt.Println("held", reply[2])

	every, _ := strconv.Atoi(ttl)
	lines := make(chan bool)
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		lines <- true
	}()
	for { // 7. and 8.
		select {
		case <-time.After(time.Duration(every) * time.Millisecond / 3):
			if reply = me.run("renew", five, me.token, ttl, ticketText, "", fenceTTL); reply[0] != "H" {
				check(fmt.Errorf("lost: %v", reply))
			}
			continue
		case <-lines:
		}
		break
	}
	if reply = me.run("leave", six, me.token, "0", "0", "", fenceTTL); reply[0] != "R" {
		check(fmt.Errorf("not released: %v", reply))
	}
	fmt.Println("released")
}
