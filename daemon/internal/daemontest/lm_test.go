//go:build linux

package daemontest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/lmcache/lm"
	"github.com/ringcache/ringcache/tier"
)

// lmServer serves lm://.
type lmServer struct {
	*lm.Server
	all *registry.Registry
}

func (s lmServer) Shutdown(ctx context.Context) error {
	s.Server.Shutdown(ctx)
	return nil
}

func (s lmServer) describe(f *facts) { f.Sessions = s.all.Counts().Sessions }

func (r *daemonRole) newLM(all *registry.Registry, store *tier.Store) (served, error) {
	log := slog.New(slog.NewTextHandler(complaints{}, &slog.HandlerOptions{Level: slog.LevelError}))
	p := sessionless.New(sessionless.Options{
		Name: "lm", Space: lm.Space, Registry: all, Rooms: &fair.Rooms{Turns: fair.NewTurns(4)}, Store: store, Logger: log,
	})
	s, err := lm.NewServer(lm.Options{
		Open:           func(raw net.Conn, end func()) (lm.Store, error) { return p.Enter(raw, end) },
		MaxConnections: math.MaxInt, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	return lmServer{s, all}, nil
}

// lmClientRole is a process of clients of lm://. The bytes of a value follow from its key and a version, which stands
// in its shape, so every byte of every hit is verified. It prints lines as clientRole does. At a line its clients rest,
// and at the end of its input it ends.
type lmClientRole struct {
	Socket  string
	Keys    int
	Clients int
	Seed    uint64
	MayMiss bool // what was stored may be evicted
	DieIn   int  // dies by itself at one of so many requests; 0 is never
}

// versions are how many values a key has: the even ones have one, as keys that are hashes of what was stored.
const versions = 3

func lmValue(n int, version int32) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(version)))
	b := make([]byte, []int{0, 100, 5000, 40_000}[n%4])
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func (r *lmClientRole) run() {
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
			c := &lmClient{
				r: r, c: lm.NewClient(lm.ClientOptions{Address: "unix://" + r.Socket}), rng: rand.New(rand.NewPCG(r.Seed, uint64(i))),
				first: i, stored: map[int]bool{}, counts: map[string]int{},
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
			_ = c.c.Close()
		})
	}
	wg.Wait()
}

type lmClient struct {
	r      *lmClientRole
	c      *lm.Client
	rng    *rand.Rand
	first  int          // its keys of one value are every so many from it on, so nobody else stores them
	stored map[int]bool // that the daemon has said it has
	counts map[string]int
}

func (c *lmClient) tell() {
	b, err := json.Marshal(c.counts)
	if err != nil {
		panic(err)
	}
	say("= %s", b)
	clear(c.counts)
}

// step does one request, again and again if the daemon is killed meanwhile.
func (c *lmClient) step(ctx context.Context) error {
	n := c.rng.IntN(c.r.Keys)*c.r.Clients + c.first
	version := int32(0)
	if n%2 == 1 {
		n, version = n%10, c.rng.Int32N(versions) // several clients store these
	}
	key := fmt.Sprintf("org/model%d@1@0@%x@bfloat16", c.r.Seed, n)
	op := c.rng.IntN(3)
	for end := time.Now().Add(patience); ; {
		if c.r.DieIn > 0 && c.rng.IntN(c.r.DieIn) == 0 {
			failpoint.Die()
		}
		err := c.request(ctx, op, n, version, key)
		if wrong := (*wrongError)(nil); err == nil || errors.As(err, &wrong) {
			return err
		}
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

type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

func wrongf(format string, args ...any) error { return &wrongError{fmt.Sprintf(format, args...)} }

func (c *lmClient) request(ctx context.Context, op, n int, version int32, key string) error {
	if op == 0 {
		if err := c.c.Put(ctx, key, lm.Meta{Format: 1, DType: 3, Shape: [4]int32{int32(n), version}}, lmValue(n, version)); err != nil {
			return err
		}
	}
	if op < 2 {
		found, err := c.c.Exists(ctx, key)
		if err != nil {
			return err
		}
		return c.judge(n, found, []string{"put", "exist"}[op])
	}
	p, b, err := c.c.Get(ctx, key, nil)
	if errors.Is(err, lm.ErrMiss) {
		return c.judge(n, false, "get")
	} else if err != nil {
		return err
	}
	if v := p.Meta.Shape[1]; p.Meta.Shape[0] != int32(n) || v < 0 || v >= versions || !bytes.Equal(b, lmValue(n, v)) {
		return wrongf("the value of %s with the shape %v has other bytes", key, p.Meta.Shape)
	}
	return c.judge(n, true, "get")
}

// judge notes whether a value is there, and that one is not lost which was.
func (c *lmClient) judge(n int, found bool, op string) error {
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
