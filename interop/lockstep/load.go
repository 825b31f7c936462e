package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ringcache/ringcache/lrusync"
)

// load drives one Sender from many goroutines against vLLM's receiver.
type load struct {
	setup
	link   *link
	sender *lrusync.Sender

	// Whoever compares orders holds mu alone from the ticket until it has seen
	// what the sender has then. The others share it, so that tickets are drawn by
	// several at once.
	mu       sync.RWMutex
	versions [worldItems]int // of each item's data
	turn     atomic.Int64
}

// call is a request of a client until it is answered for good.
type call struct {
	uses   []use
	sent   []recipe
	ticket lrusync.Ticket
	answer chan answer
	want   []lrusync.KeySize // contents after it, if compare
	total  int64
	// compare reports that nothing came between the ticket and the look at want.
	compare bool
	misses  int
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

// client is one goroutine, with the requests that it has under way.
type client struct {
	*load
	rng    *rand.Rand
	window []*call
}

func (c *client) run(n int) error {
	for range n {
		if err := c.interfere(); err != nil {
			return err
		}
		k := &call{uses: randomUses(c.rng), answer: make(chan answer, 1)}
		sent, err := c.submit(k)
		if err != nil {
			return err
		}
		if sent {
			c.window = append(c.window, k)
		}
		if len(c.window) == c.Window {
			if err := c.settle(); err != nil {
				return err
			}
		}
	}
	for len(c.window) > 0 {
		if err := c.settle(); err != nil {
			return err
		}
	}
	return nil
}

// interfere does what happens between requests.
func (c *client) interfere() error {
	unreliable := c.link.unreliable.Load()
	switch x := c.rng.IntN(2000); {
	case x < 2:
		return c.clear()
	case x < 4 && unreliable:
		c.report.count(func(c *counts) { c.Restarts++ })
		return c.link.post(&call{answer: make(chan answer, 1)}, request{Op: opForget})
	case x < 60 && !unreliable:
		// Other data under the same key is for a link that loses nothing: if it
		// got lost, vLLM would have no way to notice that its data is old.
		c.renew(use{number: c.rng.IntN(worldItems)})
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

// submit sends a request, with more data if it must. It reports false if the
// request can't be sent at all.
func (l *load) submit(k *call) (bool, error) {
	k.compare = !l.link.unreliable.Load() && l.turn.Add(1)/1000%4 != 3
	if k.compare {
		l.mu.Lock()
		defer l.mu.Unlock()
	} else {
		l.mu.RLock()
		defer l.mu.RUnlock()
	}
	for {
		err := l.send(k)
		var need *lrusync.NeedDataError
		switch {
		case err == nil:
			if k.compare {
				k.want, k.total = l.sender.Contents()
			}
			return true, nil
		case errors.As(err, &need):
			l.report.count(func(c *counts) { c.Needed++ })
			for i := range k.uses {
				k.uses[i].have = k.uses[i].have || slices.Contains(need.Keys, k.uses[i].key())
			}
		case errors.Is(err, lrusync.ErrTooLarge) && !l.rules.Cache.PutIfFits:
			l.report.count(func(c *counts) { c.RefusedLarge++ })
			return false, nil
		case errors.Is(err, lrusync.ErrHang) && l.rules.Cache.GhostTouch:
			l.report.count(func(c *counts) { c.RefusedGhost++ })
			return false, nil
		default:
			return false, err
		}
	}
}

func (l *load) send(k *call) error {
	order := visitingOrder(k.uses, l.ByModality)
	items := make([]lrusync.Item, len(order))
	k.sent = make([]recipe, len(order))
	var large int64
	for at, i := range order {
		u := k.uses[i]
		r := newRecipe(u.number, l.versions[u.number], l.Capacity)
		size, err := r.size(l.python)
		if err != nil {
			return err
		}
		if float64(size) > l.Capacity {
			large++
		}
		k.sent[i] = r
		items[at] = lrusync.Item{
			Key: u.key(), HasData: u.have, Size: size, Fresh: k.misses > 1,
			Updates: binary.LittleEndian.AppendUint64(nil, uint64(r.Stamp)),
		}
	}
	t, err := l.sender.Send(context.Background(), items, func(t lrusync.Ticket) error {
		fs := make([]item, len(order))
		for at, i := range order {
			u := k.uses[i]
			f := item{Key: u.key(), Identifier: u.key(), Modality: u.modality, Position: u.position}
			if l.rules.FeatureHash && u.number%2 == 0 {
				f.Identifier = "adapter:" + f.Key
			}
			if f.Has = !t.Omit[at]; f.Has {
				f.Recipe = k.sent[i]
			}
			fs[i] = f
		}
		return l.link.post(k, request{Op: opRequest, Order: k.compare, Items: fs})
	})
	if err != nil {
		return err
	}
	k.ticket = t
	for at, i := range order {
		// The prompt updates belong to the data that the model will get.
		if got := int64(binary.LittleEndian.Uint64(t.Updates[at])); got != k.sent[i].Stamp {
			return fmt.Errorf("%s: prompt updates of %d, want %d", items[at].Key, got, k.sent[i].Stamp)
		}
	}
	l.report.count(func(c *counts) {
		c.Items += int64(len(items))
		c.Evicted += int64(len(t.Evicted))
		c.Oversize += large
		for _, omit := range t.Omit {
			if omit {
				c.Hits++
			}
		}
	})
	return nil
}

// settle sees the oldest request of the window to its end.
func (c *client) settle() error {
	k := c.window[0]
	c.window = c.window[1:]
	for {
		var a answer
		select {
		case a = <-k.answer:
		case <-c.link.dead:
			return c.link.err
		}
		again := a.lost // the client's patience ended
		if len(a.Missing) > 0 {
			c.report.count(func(c *counts) {
				if c.Misses++; k.misses > 0 {
					c.MissedAgain++
				}
			})
			c.sender.Missed(k.ticket.Envelope, a.Missing)
			k.misses++
			again = c.Mode == "faults" && k.misses < 3
		}
		if !again {
			c.check(k, a)
			return nil
		}
		for i := range k.uses {
			k.uses[i].have = true
		}
		c.report.count(func(c *counts) { c.Resends++ })
		if _, err := c.submit(k); err != nil {
			return err
		}
	}
}

func (l *load) check(k *call, a answer) {
	l.report.count(func(c *counts) { c.Requests++ })
	if k.compare {
		l.report.count(func(c *counts) { c.Compared++ })
		if text := a.Contents.differ(k.want, k.total); text != "" {
			l.report.differs("request %d: %s", a.ID, text)
		}
	}
	switch {
	case a.Error != "":
		l.report.fails("request %d: %s", a.ID, a.Error)
		return
	case a.Missing != nil:
		l.report.fails("request %d missed %v", a.ID, a.Missing)
		return
	case len(a.Values) != len(k.uses):
		l.report.fails("request %d: %d values for %d items", a.ID, len(a.Values), len(k.uses))
		return
	}
	for i, v := range a.Values {
		want := k.sent[i]
		if !l.rules.Cache.FreshWins {
			// An older version is what such a vLLM keeps, if it has one.
			if version := v.Stamp & (1<<20 - 1); v.Stamp < want.Stamp && v.Stamp>>20 == want.Stamp>>20 {
				want = newRecipe(k.uses[i].number, int(version), l.Capacity)
			}
		}
		if v.Stamp != want.Stamp || v.Words != want.Words {
			l.report.fails("request %d, %s: %d words of %d, want %d of %d", a.ID, k.uses[i].key(), v.Words, v.Stamp, want.Words, want.Stamp)
			return
		}
	}
}
