//go:build linux

package daemontest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

const (
	honestSpace   = "honest"
	honestObjects = 900 // about 12 MiB of a segment of 64 MiB
	honestRounds  = 4   // in which all of it is asked for, before anything is measured: it is a set that is in use
	honestCost    = 50 * time.Millisecond
	honestThinks  = 20 * time.Millisecond // between two requests of a session, on average
)

// honestRole is a process of sessions that ask for two objects of a working set again and again, and store
// what is missing. It prints "warm" when all of its share of the set is there, measures from the line
// "measure" to the line "stop", and prints a report.
type honestRole struct {
	Socket, Dir string
	Sessions    int
	Seed        uint64
}

// honestReport is what sessions have seen.
type honestReport struct {
	Hits    []int64 // microseconds of each, from the request to the answer
	Misses  int
	Refused int // objects that could not be stored
	Wrong   []string
}

type honest struct {
	honestRole
	ctx       context.Context
	measuring atomic.Bool

	mu sync.Mutex // guards report
	honestReport
}

func (r *honestRole) run() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	h := &honest{honestRole: *r, ctx: ctx}
	var wg, warm sync.WaitGroup
	for i := range r.Sessions {
		warm.Add(1)
		wg.Go(func() {
			if err := h.session(i, sync.OnceFunc(warm.Done)); err != nil && ctx.Err() == nil {
				h.mu.Lock()
				h.Wrong = append(h.Wrong, err.Error())
				h.mu.Unlock()
			}
		})
	}
	warm.Wait()
	say("warm")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "measure":
			h.measuring.Store(true)
		case "stop":
			stop()
			wg.Wait()
			b, err := json.Marshal(h.honestReport)
			if err != nil {
				panic(err)
			}
			say("%s", b)
		}
	}
}

// session is one session's work. It asks for its share of the set first, some times.
func (h *honest) session(number int, warm func()) error {
	defer warm()
	c, err := client.Dial(h.ctx, client.Options{Socket: h.Socket, Name: "honest", Dir: h.Dir})
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := c.Map(h.ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	for range honestRounds {
		for n := number; n < honestObjects; n += h.Sessions {
			if err := h.ask(c, m, []int{n}); err != nil {
				return err
			}
		}
	}
	warm()
	rng := rand.New(rand.NewPCG(h.Seed, uint64(number)))
	for {
		select {
		case <-h.ctx.Done():
			return nil
		case <-time.After(time.Duration(rng.Int64N(int64(2 * honestThinks)))):
		}
		n := rng.IntN(honestObjects - 1)
		if err := h.ask(c, m, []int{n, n + 1}); err != nil {
			return err
		}
	}
}

// ask pins objects, verifies hits, stores what is missing, and releases all of it.
func (h *honest) ask(c *client.Client, m *client.Mapping, numbers []int) error {
	measures := h.measuring.Load()
	const lease = "request"
	begin := time.Now()
	items, err := h.pin(c, lease, numbers)
	if err != nil {
		return err
	}
	took := time.Since(begin).Microseconds()
	var hits []int64
	misses := 0
	for i, v := range items {
		if v.Status != wire.StatusHit {
			misses++
			if err := h.store(c, m, lease, numbers[i], measures); err != nil {
				return err
			}
			continue
		}
		hits = append(hits, took)
		if err := wrongBytes(m, v, honestSpace, numbers[i]); err != nil {
			return err
		}
	}
	if measures {
		h.mu.Lock()
		h.Hits = append(h.Hits, hits...)
		h.Misses += misses
		h.mu.Unlock()
	}
	return c.Release(h.ctx, wire.Request{Leases: []string{lease}})
}

// pin asks until nothing is pending: another session stores it.
func (h *honest) pin(c *client.Client, lease string, numbers []int) ([]wire.Item, error) {
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		items, err := c.Pin(h.ctx, wire.Request{Lease: lease, Space: honestSpace, Names: namesOf(numbers)})
		if err != nil {
			return nil, err
		}
		pending := false
		for _, v := range items {
			pending = pending || v.Status == wire.StatusPending
		}
		if !pending {
			return items, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("objects %v are pending for ever", numbers)
		}
	}
}

func (h *honest) store(c *client.Client, m *client.Mapping, lease string, number int, measures bool) error {
	o := wire.Object{Name: Name(number), Size: int64(sizes[number%len(sizes)]), Cost: honestCost}
	items, err := c.Reserve(h.ctx, wire.Request{Lease: lease, Space: honestSpace, Objects: []wire.Object{o}})
	if err != nil {
		return err
	}
	if items[0].Status != wire.StatusReserved {
		if measures && items[0].Status == wire.StatusFull {
			h.mu.Lock()
			h.Refused++
			h.mu.Unlock()
		}
		return nil
	}
	b, err := m.Bytes(items[0])
	if err != nil {
		return err
	}
	Fill(b, honestSpace, number)
	_, err = c.Commit(h.ctx, wire.Request{Lease: lease, Space: honestSpace, Names: []string{o.Name}})
	return err
}
