//go:build linux

package daemontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/fair"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
)

// valueProtocol is a protocol whose clients put and get whole values by their keys.
type valueProtocol struct {
	space string
	serve func(p *sessionless.Protocol, store *tier.Store, log *slog.Logger) (s server, sessions int, err error)
	dial  func(socket string, i int) valueConn // for the i-th client of a process
	lies  func(rng *rand.Rand) lyingConn       // for one connection
	grace time.Duration                        // of a daemon from which nothing may lapse
}

// valueProtocols are by their names in daemonRole.
var valueProtocols = map[string]valueProtocol{protocolLM: lmProtocol, protocolRESP: respProtocol}

// valueConn is what a client does. It connects itself again after an error.
type valueConn interface {
	put(ctx context.Context, key string, value versioned) (refused bool, err error)
	exists(ctx context.Context, key string) (bool, error)
	// get returns all that the daemon gives for a key.
	get(ctx context.Context, key string) (value versioned, b []byte, found bool, err error)
	close()
}

// versioned says which bytes a value has.
type versioned struct{ n, version int32 }

// versions are how many values a key has: the even ones have one, as keys that are hashes of what was stored.
const versions = 3

// bytes returns the bytes of a value. Versions differ in size, too.
func (v versioned) bytes() []byte {
	rng := rand.New(rand.NewPCG(uint64(v.n), uint64(v.version)))
	b := make([]byte, []int32{0, 100, 5000, 40_000}[v.n%4]+v.version%2*8)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func (r *daemonRole) newValues(all *registry.Registry, store *tier.Store) (served, error) {
	protocol := valueProtocols[r.Protocol]
	log := slog.New(slog.NewTextHandler(complaints{}, &slog.HandlerOptions{Level: slog.LevelError}))
	p := sessionless.New(sessionless.Options{
		Name: r.Protocol, Space: protocol.space, Registry: all, Rooms: &fair.Rooms{Turns: fair.NewTurns(4)},
		Store: store, Logger: log,
	})
	s, own, err := protocol.serve(p, store, log)
	if err != nil {
		return nil, err
	}
	return registered{s, all, own}, nil
}

// valueClientRole is a process of clients of a protocol of values. The bytes of a value follow from its key and a
// version, which is stored with them, so every byte of every hit is verified. It prints lines as clientRole does. At a
// line its clients rest, and at the end of its input it ends.
type valueClientRole struct {
	Protocol string
	Socket   string
	Keys     int
	Clients  int
	Seed     uint64
	MayMiss  bool // what was stored may be evicted
	DieIn    int  // dies by itself at one of so many requests; 0 is never
}

func (r *valueClientRole) run() {
	ctx, rest := obey()
	var wg sync.WaitGroup
	for i := range r.Clients {
		wg.Go(func() {
			c := &valueClient{
				r: r, conn: valueProtocols[r.Protocol].dial(r.Socket, i), rng: rand.New(rand.NewPCG(r.Seed, uint64(i))),
				first: i, stored: map[int32]bool{}, counts: map[string]int{},
			}
			for n := 1; ctx.Err() == nil; n++ {
				if rest() {
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
			c.conn.close()
		})
	}
	wg.Wait()
}

type valueClient struct {
	r      *valueClientRole
	conn   valueConn
	rng    *rand.Rand
	first  int            // its keys of one value are every so many from it on, so nobody else stores them
	stored map[int32]bool // that the daemon has said it has
	counts map[string]int
}

func (c *valueClient) tell() {
	say("= %s", encoded(c.counts))
	clear(c.counts)
}

// step does one request, again and again if the daemon is killed meanwhile.
func (c *valueClient) step(ctx context.Context) error {
	v := versioned{n: int32(c.rng.IntN(c.r.Keys)*c.r.Clients + c.first)}
	if v.n%2 == 1 {
		v = versioned{v.n % 10, c.rng.Int32N(versions)} // several clients store these
	}
	op := c.rng.IntN(3)
	for end := time.Now().Add(patience); ; {
		if c.r.DieIn > 0 && c.rng.IntN(c.r.DieIn) == 0 {
			failpoint.Die()
		}
		err := c.request(ctx, op, v)
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

func (c *valueClient) request(ctx context.Context, op int, v versioned) error {
	key := fmt.Sprintf("org/model%d@1@0@%x@bfloat16", c.r.Seed, v.n)
	if op == 0 {
		refused, err := c.conn.put(ctx, key, v)
		if err != nil {
			return err
		}
		if refused {
			c.counts["put, refused"]++
			return nil
		}
	}
	if op < 2 {
		found, err := c.conn.exists(ctx, key)
		if err != nil {
			return err
		}
		return c.judge(v.n, found, []string{"put", "exists"}[op])
	}
	got, b, found, err := c.conn.get(ctx, key)
	if err != nil {
		return err
	}
	if found && (got.n != v.n || got.version < 0 || got.version >= versions || !bytes.Equal(b, got.bytes())) {
		return wrongf("%s has other bytes: %d of the value %+v", key, len(b), got)
	}
	return c.judge(v.n, found, "get")
}

// judge notes whether a value is there, and that one is not lost which was.
func (c *valueClient) judge(n int32, found bool, op string) error {
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

// killServersOfValues kills daemons that serve a protocol of values, under its clients, and clients, too. No
// client gets a wrong byte or another value's description, or loses what the daemon has said it has; and when
// all are gone nothing is held.
func killServersOfValues(t *testing.T, protocol string, kills int, seed uint64) {
	t.Helper()
	d := daemonRole{Protocol: protocol, Size: 64 << 20, Grace: valueProtocols[protocol].grace}
	small, least := d, d
	small.Size, small.Disk = 4<<20, true
	least.Size, least.Grace = 2<<20, 10*time.Millisecond
	eachKiller(t, kills, seed, []*killer{
		{name: "memory", daemon: d, share: 2},
		{name: "disk below a small memory", daemon: small, share: 2},
		{name: "hardly any memory or grace", daemon: least, share: 1, mayLapse: true},
	}, func(k *killer, kills int) {
		k.killUnderClients(kills, 400, func(dieIn int) role {
			return role{ValueClient: &valueClientRole{
				Protocol: protocol, Socket: k.daemon.socket(), Keys: 100, Clients: 4, Seed: k.rng.Uint64N(1 << 20),
				MayMiss: k.mayLapse, DieIn: dieIn,
			}}
		})
	})
}
