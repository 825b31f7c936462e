//go:build linux

package daemontest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/lmcache/resp"
	"github.com/ringcache/ringcache/tier"
)

// respServer serves clients of Redis.
type respServer struct {
	*resp.Server
	all *registry.Registry
}

func (s respServer) Shutdown(ctx context.Context) error {
	s.Server.Shutdown(ctx)
	return nil
}

// describe leaves out the session of what EXISTS has affirmed, which is the daemon's own.
func (s respServer) describe(f *facts) { f.Sessions = s.all.Counts().Sessions - 1 }

// respPin is how long what EXISTS has affirmed stays pinned here.
const respPin = 200 * time.Millisecond

func (r *daemonRole) newRESP(all *registry.Registry, store *tier.Store) (served, error) {
	log := slog.New(slog.NewTextHandler(complaints{}, &slog.HandlerOptions{Level: slog.LevelError}))
	p := sessionless.New(sessionless.Options{
		Name: "resp", Space: resp.Space, Registry: all, Rooms: &fair.Rooms{Turns: fair.NewTurns(4)}, Store: store, Logger: log,
	})
	pins, err := p.Pins()
	if err != nil {
		return nil, err
	}
	s, err := resp.NewServer(resp.Options{
		Store: store, Space: resp.Space, Pins: pins, PinTime: respPin, Flush: true, MaxConnections: math.MaxInt, Logger: log,
		Open: func(raw net.Conn, end func()) (resp.Store, error) { return p.Enter(raw, end) },
	})
	if err != nil {
		pins.Close()
		return nil, err
	}
	return respServer{s, all}, nil
}

// respClientRole is a process of clients as LMCache's native one, and of others beside. The bytes of a value follow from
// its key and a version, which stands in front of them, so every byte of every hit is verified. It prints lines as
// clientRole does. At a line its clients rest, and at the end of its input it ends.
type respClientRole struct {
	Socket  string
	Keys    int
	Clients int
	Seed    uint64
	MayMiss bool // what was stored may be evicted
	DieIn   int  // dies by itself at one of so many requests; 0 is never
}

// respValue returns a value of a key. Versions differ in size, too.
func respValue(n int, version uint32) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(version)))
	b := binary.BigEndian.AppendUint32(nil, version)
	for range []int{0, 100, 5000, 40_000}[n%4] + int(version%2)*8 {
		b = append(b, byte(rng.Uint32()))
	}
	return b
}

func (r *respClientRole) run() {
	ctx, stop := context.WithCancel(context.Background())
	var rest atomic.Bool
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			rest.Store(true)
		}
		stop()
	}()
	var wg sync.WaitGroup
	for i := range r.Clients {
		wg.Go(func() {
			c := &respClient{
				r: r, rng: rand.New(rand.NewPCG(r.Seed, uint64(i))), first: i, native: i%2 == 0, stored: map[int]bool{}, counts: map[string]int{},
			}
			for n := 1; ctx.Err() == nil; n++ {
				if rest.Load() {
					<-ctx.Done()
					break
				}
				if err := c.step(ctx); err != nil && ctx.Err() == nil {
					say("! %v", strings.ReplaceAll(err.Error(), "\n", " "))
					break
				}
				say(".")
				if n%100 == 0 {
					c.tell()
				}
			}
			c.tell()
			c.hangUp()
		})
	}
	wg.Wait()
}

type respClient struct {
	r      *respClientRole
	native bool // sends nothing else than LMCache's native client
	rng    *rand.Rand
	first  int          // its keys of one value are every so many from it on, so nobody else stores them
	stored map[int]bool // that the daemon has said it has
	counts map[string]int

	conn net.Conn // nil if there is none
	in   *bufio.Reader
}

func (c *respClient) tell() {
	b, err := json.Marshal(c.counts)
	if err != nil {
		panic(err)
	}
	say("= %s", b)
	clear(c.counts)
}

func (c *respClient) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close() // what was sent was answered
		c.conn = nil
	}
}

// step does one request, again and again if the daemon is killed meanwhile.
func (c *respClient) step(ctx context.Context) error {
	n := c.rng.IntN(c.r.Keys)*c.r.Clients + c.first
	version := uint32(0)
	if n%2 == 1 {
		n, version = n%10, c.rng.Uint32N(versions) // several clients store these
	}
	key := fmt.Sprintf("org/model%d@1@0@%x@bfloat16", c.r.Seed, n)
	op := c.rng.IntN(3)
	for end := time.Now().Add(patience); ; {
		if c.r.DieIn > 0 && c.rng.IntN(c.r.DieIn) == 0 {
			failpoint.Die()
		}
		err := c.request(op, n, version, key)
		if wrong := (*wrongError)(nil); err == nil || errors.As(err, &wrong) {
			return err
		}
		c.hangUp()
		c.counts["lost"]++
		if !time.Now().Before(end) {
			return fmt.Errorf("no daemon: %w", err)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *respClient) request(op, n int, version uint32, key string) error {
	if op == 0 {
		line, _, err := c.do("SET", key, string(respValue(n, version)))
		switch {
		case err != nil:
			return err
		case line != "+OK" && line[0] != '-' || c.native && len(line) != len("+OK"):
			return wrongf("SET is answered %.100q", line)
		case line[0] == '-':
			c.counts["set, refused"]++
			return nil
		}
	}
	if op < 2 {
		line, _, err := c.do("EXISTS", key)
		switch {
		case err != nil:
			return err
		case line != ":0" && line != ":1":
			return wrongf("EXISTS is answered %.100q", line)
		}
		return c.judge(n, line == ":1", []string{"set", "exists"}[op])
	}
	line, b, err := c.do("GET", key)
	switch {
	case err != nil:
		return err
	case line == "$-1" || line[0] == '-' && c.native:
		return c.judge(n, false, "get")
	case line[0] != '$':
		return wrongf("GET is answered %.100q", line)
	}
	if v := binary.BigEndian.Uint32(append(bytes.Clone(b), 0, 0, 0, 0)); len(b) < 4 || v >= versions || !bytes.Equal(b, respValue(n, v)) {
		return wrongf("the value of %s has other bytes: %d of them", key, len(b))
	}
	return c.judge(n, true, "get")
}

// do sends a command, and returns the first line of the answer, and the value behind it.
func (c *respClient) do(args ...string) (line string, value []byte, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("unix", c.r.Socket); err != nil {
			c.conn = nil
			return "", nil, err
		}
		c.in = bufio.NewReader(c.conn)
		if !c.native {
			if line, _, err := c.do("PING"); err != nil || line != "+PONG" {
				return "", nil, errors.Join(err, io.ErrUnexpectedEOF)
			}
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", nil, err
	}
	if _, err := c.conn.Write(respCommand(args...)); err != nil {
		return "", nil, err
	}
	return readRESP(c.in)
}

// respCommand is a command as clients write it.
func respCommand(args ...string) []byte {
	out := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		out = fmt.Appendf(out, "$%d\r\n%s\r\n", len(a), a)
	}
	return out
}

// readRESP reads an answer that is not an array.
func readRESP(in *bufio.Reader) (line string, value []byte, err error) {
	text, err := in.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	line, ok := strings.CutSuffix(text, "\r\n")
	if !ok || line == "" {
		return "", nil, wrongf("a line of an answer is %.100q", text)
	}
	if line[0] != '$' || line == "$-1" {
		return line, nil, nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 || n > 1<<20 {
		return "", nil, wrongf("a value is announced as %.100q", line)
	}
	value = make([]byte, n+2)
	if _, err := io.ReadFull(in, value); err != nil {
		return "", nil, err
	}
	if string(value[n:]) != "\r\n" {
		return "", nil, wrongf("a value of %d bytes does not end there", n)
	}
	return line, value[:n], nil
}

// judge notes whether a value is there, and that one is not lost which was.
func (c *respClient) judge(n int, found bool, op string) error {
	if found {
		c.counts[op+", found"]++
		c.stored[n] = true
		return nil
	}
	c.counts[op+", not found"]++
	if c.stored[n] && n%2 == 0 && !c.r.MayMiss {
		return wrongf("value %d is not there any more", n)
	}
	return nil
}
