package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/lrusync"
)

// load drives one Sender from many goroutines against vLLM's receiver.
type load struct {
	setup
	link   *link
	sender *lrusync.Sender

	// A goroutine that compares orders holds mu exclusively from the ticket until it has seen
	// what the sender has then. The others share it, so that tickets are drawn by
	// several at once.
	mu       sync.RWMutex
	versions [worldItems]int // of each item's data
	turn     atomic.Int64
}

func (s *setup) load() error {
	sender, err := lrusync.NewSender(lrusync.Options{Capacity: s.Capacity, Generation: s.rules})
	if err != nil {
		return err
	}
	l := &load{setup: *s, sender: sender, link: newLink(s.w, s.report, s.Seed)}
	defer l.link.end(errors.New("done"))
	if s.Mode == "faults" {
		if !s.rules.Cache.MissError {
			return fmt.Errorf("vLLM %s does not survive a lost request", s.Generation)
		}
		l.link.unreliable.Store(true)
		if err := l.clients(s.Requests); err != nil {
			return err
		}
		// After a barrier all must be as if nothing had been.
		l.link.unreliable.Store(false)
		if err := l.clear(); err != nil {
			return err
		}
		s.Requests = s.Requests/10 + 1
	}
	if err := l.clients(s.Requests); err != nil {
		return err
	}
	return sender.CheckStructure()
}

func (l *load) clients(requests int) error {
	errs := make([]error, l.Clients)
	var wg sync.WaitGroup
	for i := range errs {
		n := requests / l.Clients
		if i < requests%l.Clients {
			n++
		}
		wg.Go(func() {
			c := client{load: l, rng: rand.New(rand.NewPCG(l.Seed, uint64(i)))}
			if errs[i] = c.run(n); errs[i] != nil {
				l.link.end(errs[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return l.link.err // the first one; the others are its echo
		}
	}
	return nil
}

func (l *load) clear() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.count(func(c *counts) { c.Clears++ })
	return l.sender.Clear(context.Background(), func(lrusync.Envelope) error {
		return l.link.post(&call{answer: make(chan answer, 1)}, request{Op: opClear})
	})
}

func (l *load) renew(u use) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.count(func(c *counts) { c.Renewed++ })
	l.versions[u.number]++
	l.sender.Renew(u.key())
}
