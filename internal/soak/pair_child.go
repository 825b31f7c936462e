package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/lossypair"
	"github.com/ringcache/ringcache/lrusync"
)

var pairOptions = lrusync.Options{Capacity: 1 << 20}

const (
	pairClients = 4
	pairKeys    = 120
)

// runReceiver is the engine's end of the pair. It serves one connection after the other, with
// the same cache: the supervisor starts another sender after one was killed.
func runReceiver(c childCommand, orders <-chan message) error {
	if err := os.Remove(c.Link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	ln, err := net.Listen("unix", c.Link)
	if err != nil {
		return err
	}
	r, err := lrusync.NewReceiver[[]byte](pairOptions)
	if err != nil {
		return err
	}
	report(message{Kind: "ready"})
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				fail(err)
			}
			_ = lossypair.Serve(conn, r) // a sender that was killed ends in the middle of a line
			_ = conn.Close()
			if err := r.CheckStructure(); err != nil {
				fail(err)
			}
		}
	}()
	for m := range orders {
		if err := r.CheckStructure(); err != nil {
			return err
		}
		if m.Kind == "end" {
			return nil
		}
		report(message{Kind: "state", Goroutines: runtime.NumGoroutine()})
	}
	return nil
}

// pairCounts are what a sender did since its last report.
type pairCounts struct {
	Requests, Drifts, Repairs, Resent, Omitted, Bytes, Dropped, Swapped int64
}

// sender is the frontend's end of the pair.
type sender struct {
	c childCommand
	f *lossypair.Frontend

	mu       sync.Mutex // guards what follows; held while a new link is made
	link     *lossypair.Link
	rng      *rand.Rand
	lossless bool
	done     pairCounts // counts of links that are down; only Dropped and Swapped are used
	reported pairCounts

	requests atomic.Int64
	ending   atomic.Bool
}

func runSender(c childCommand, orders <-chan message) error {
	half, err := lrusync.NewSender(pairOptions)
	if err != nil {
		return err
	}
	s := &sender{c: c, rng: rand.New(rand.NewPCG(c.Seed, 0))}
	s.f = &lossypair.Frontend{Sender: half, Link: s.connect, Payload: func(key string, size int64) []byte {
		b := make([]byte, size)
		fillContent(b, contentSeed(key, 0), 0)
		return b
	}}
	report(message{Kind: "ready"})
	failed := make(chan error, pairClients)
	var clients sync.WaitGroup
	for n := range pairClients {
		clients.Go(func() {
			if err := s.client(rand.New(rand.NewPCG(c.Seed, uint64(1+n)))); err != nil {
				failed <- err
			}
		})
	}
	for {
		select {
		case err := <-failed:
			return err
		case m := <-orders:
			if m.Kind == "end" {
				return s.end(&clients, failed)
			}
			if err := half.CheckStructure(); err != nil {
				return err
			}
			report(message{Kind: "state", Goroutines: runtime.NumGoroutine(), Pair: s.counts()})
		}
	}
}

// client makes requests until the sender ends.
func (s *sender) client(rng *rand.Rand) error {
	for !s.ending.Load() {
		if rng.IntN(2000) == 0 {
			if err := s.f.Clear(context.Background()); err != nil {
				return err
			}
		}
		items := make([]lrusync.Item, 1+rng.IntN(4))
		for i := range items {
			k := min(rng.IntN(pairKeys), rng.IntN(pairKeys))
			items[i] = lrusync.Item{Key: fmt.Sprint("k", k), Size: int64(math.Exp2(float64(k%17))) + int64(k),
				HasData: rng.IntN(2) == 0}
		}
		if err := s.f.Do(context.Background(), items); err != nil {
			return err
		}
		s.requests.Add(1)
	}
	return nil
}

// connect returns the link, or a new one if it is down.
func (s *sender) connect() (*lossypair.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil {
		select {
		case <-s.link.Done:
			dropped, swapped := s.link.Losses()
			s.done.Dropped += int64(dropped)
			s.done.Swapped += int64(swapped)
			s.link = nil
		default:
			return s.link, nil
		}
	}
	for {
		conn, err := net.Dial("unix", s.c.Link)
		if err != nil { // the receiver is being restarted
			time.Sleep(5 * time.Millisecond)
			continue
		}
		rng := s.rng
		if s.lossless {
			rng = nil
		}
		s.link = lossypair.NewLink(conn, rng)
		go func(l *lossypair.Link) {
			<-l.Done
			_ = conn.Close()
		}(s.link)
		return s.link, nil
	}
}

// counts returns the counts since the last call.
func (s *sender) counts() pairCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.f
	now := pairCounts{
		s.requests.Load(), f.Drifts.Load(), f.Repairs.Load(), f.Resent.Load(), f.Omitted.Load(), f.Bytes.Load(),
		s.done.Dropped, s.done.Swapped,
	}
	if s.link != nil {
		dropped, swapped := s.link.Losses()
		now.Dropped += int64(dropped)
		now.Swapped += int64(swapped)
	}
	was := s.reported
	s.reported = now
	return pairCounts{
		now.Requests - was.Requests, now.Drifts - was.Drifts, now.Repairs - was.Repairs, now.Resent - was.Resent,
		now.Omitted - was.Omitted, now.Bytes - was.Bytes, now.Dropped - was.Dropped, now.Swapped - was.Swapped,
	}
}

// end waits for the clients, and compares both ends.
func (s *sender) end(clients *sync.WaitGroup, failed <-chan error) error {
	s.ending.Store(true)
	clients.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	s.mu.Lock()
	s.lossless = true
	if s.link != nil {
		s.link.Lossless()
	}
	s.mu.Unlock()
	for {
		for range 2 { // the first one detects what the last loss did
			if err := s.f.Do(context.Background(), []lrusync.Item{{Key: "k1", Size: 3, HasData: true}}); err != nil {
				return err
			}
		}
		if err := s.f.Compare(); !errors.Is(err, lossypair.ErrDown) {
			report(message{Kind: "state", Goroutines: runtime.NumGoroutine(), Pair: s.counts()})
			return err
		}
	}
}
