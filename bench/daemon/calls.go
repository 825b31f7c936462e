package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/bench/internal/stats"
	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// kind is a kind of turn: calls of one session, one after the other.
type kind struct {
	name  string
	calls int // round trips
	turn  func(ctx context.Context, s *session) error
	// frames are the lengths of the bodies of requests and replies.
	frames func(o options) [][2]int
}

// session is one that is timed.
type session struct {
	o    options
	c    *client.Client
	n, i int // its number, and that of the turn
}

var made atomic.Int64 // objects that were stored while being timed

func kinds() []kind {
	pin := func(n int) func(context.Context, *session) error {
		return func(ctx context.Context, s *session) error {
			items, err := s.c.Pin(ctx, wire.Request{Lease: "pin", Space: space,
				Names: names(s.n*1000+s.i*n, n, s.o.Objects), Seconds: 300})
			if err != nil || s.i%8 != 7 {
				return all(items, err, wire.StatusHit)
			}
			return errors.Join(all(items, nil, wire.StatusHit), s.c.Release(ctx, wire.Request{Leases: []string{"pin"}}))
		}
	}
	pinFrames := func(n int) func(o options) [][2]int {
		return func(o options) [][2]int {
			q := &wire.Request{ID: 1000, Op: wire.Pin, Lease: "pin", Space: space, Names: names(0, n, o.Objects),
				Seconds: 300}
			return [][2]int{{requestLength(q), replyLength(n, wire.StatusHit, o)}}
		}
	}
	stored := func(s *session) wire.Request {
		return wire.Request{Lease: "store", Space: space, Names: []string{fmt.Sprintf("%064x", made.Add(1)+1<<40)},
			Seconds: 300}
	}
	return []kind{
		{"Pin of 1 key, a hit", 1, pin(1), pinFrames(1)},
		{"Pin of 64 keys, all hits", 1, pin(64), pinFrames(64)},
		{"Reserve and Commit of an object", 2, func(ctx context.Context, s *session) error {
			q := stored(s)
			reserve := q
			reserve.Names, reserve.Objects = nil,
				[]wire.Object{{Name: q.Names[0], Size: int64(s.o.size()), Note: []byte("bfloat16 256 80")}}
			items, err := s.c.Reserve(ctx, reserve)
			if err := all(items, err, wire.StatusReserved); err != nil {
				return err
			}
			q.Seconds = 0
			items, err = s.c.Commit(ctx, q)
			return all(items, err, wire.StatusOK)
		}, func(o options) [][2]int {
			q := &wire.Request{
				ID: 1000, Op: wire.Reserve, Lease: "store", Space: space, Seconds: 300,
				Objects: []wire.Object{{Name: name(0), Size: int64(o.size()), Note: []byte("bfloat16 256 80")}},
			}
			c := &wire.Request{ID: 1000, Op: wire.Commit, Lease: "store", Space: space, Names: names(0, 1, o.Objects)}
			return [][2]int{{requestLength(q), replyLength(1, wire.StatusReserved, o)},
				{requestLength(c), replyLength(1, wire.StatusOK, o)}}
		}},
	}
}

const header = 4 // bytes of a frame's length

func requestLength(q *wire.Request) int {
	b, err := wire.AppendRequest(nil, q)
	if err != nil {
		panic(err)
	}
	return len(b) - header
}

func replyLength(n int, status wire.Status, o options) int {
	p := &wire.Reply{ID: 1000, Items: make([]wire.Item, n)}
	for i := range p.Items {
		if p.Items[i].Status = status; status != wire.StatusOK {
			p.Items[i].Offset, p.Items[i].Size, p.Items[i].Note = uint64(o.size()*1000), int64(o.size()),
				[]byte("bfloat16 256 80")
		}
	}
	b, err := wire.AppendReply(nil, p)
	if err != nil {
		panic(err)
	}
	return len(b) - header
}

// timed is what was measured of a kind, with a number of sessions.
type timed struct {
	kind        string
	calls       int
	sessions    int
	ours, floor latencies
}

type latencies struct {
	p50, p99 float64 // microseconds of a turn
	rate     float64 // turns per second, of all sessions; the median of the rounds
}

// calls times all kinds, in rounds.
func calls(ctx context.Context, b *bed, r *results) error {
	numbers := slices.Compact([]int{1, b.o.Sessions})
	for _, k := range kinds() { // what stores is last: it pushes out what others find
		for _, n := range numbers {
			var ours, floor samples
			for round := range b.o.Rounds {
				for turn := range 2 {
					into, begin := &ours, b.ours
					if (round+turn)%2 != 0 {
						into, begin = &floor, b.floor
					}
					if err := b.times(ctx, n, into, func(i int) (func() error, func(), error) {
						return begin(ctx, k, i)
					}); err != nil {
						return fmt.Errorf("%s: %w", k.name, err)
					}
				}
			}
			r.timed = append(r.timed, timed{k.name, k.calls, n, ours.latencies(), floor.latencies()})
		}
	}
	return nil
}

// samples are those of all rounds.
type samples struct {
	us    []float64
	rates []float64
}

func (s *samples) latencies() latencies {
	sorted := stats.Sorted(s.us)
	return latencies{stats.Quantile(sorted, 0.5), stats.Quantile(sorted, 0.99), stats.Median(s.rates)}
}

// times makes turns of n sessions for the time of a round. begin returns a session's turn, and its end.
func (b *bed) times(ctx context.Context, n int, into *samples, begin func(int) (func() error, func(), error)) error {
	turns, ends := make([]func() error, n), make([]func(), n)
	for i := range n {
		var err error
		if turns[i], ends[i], err = begin(i); err != nil {
			return err
		}
		defer ends[i]()
	}
	var stop atomic.Bool
	us, errs := make([][]float64, n), make([]error, n)
	var wg sync.WaitGroup
	began := time.Now()
	for i, turn := range turns {
		wg.Go(func() {
			for !stop.Load() && errs[i] == nil {
				at := time.Now()
				errs[i] = turn()
				us[i] = append(us[i], float64(time.Since(at).Nanoseconds())/1000)
			}
		})
	}
	select {
	case <-time.After(time.Duration(b.o.Seconds * float64(time.Second))):
	case <-ctx.Done():
	}
	stop.Store(true)
	wg.Wait()
	took := time.Since(began).Seconds()
	count := 0
	for _, x := range us {
		count += len(x)
		into.us = append(into.us, x...)
	}
	into.rates = append(into.rates, float64(count)/took)
	return cmp.Or(append(errs, ctx.Err())...)
}

func (b *bed) ours(ctx context.Context, k kind, i int) (func() error, func(), error) {
	c, err := b.dial(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	s := &session{o: b.o, c: c, n: i}
	turn := func() error { err := k.turn(ctx, s); s.i++; return err }
	return turn, func() {
		_ = c.Release(ctx, wire.Request{Leases: []string{"pin", "store"}}) // the next session has another name
		_ = c.Close()
	}, nil
}

// floor sends frames of the same lengths to the echo.
func (b *bed) floor(ctx context.Context, k kind, _ int) (func() error, func(), error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", b.socket(echoRole))
	if err != nil {
		return nil, nil, err
	}
	r := wire.NewReader(c, wire.MaxReply)
	frames := k.frames(b.o)
	out := make([]byte, 1<<20)
	turn := func() error {
		for _, f := range frames {
			binary.LittleEndian.PutUint32(out, uint32(f[0]))
			binary.LittleEndian.PutUint32(out[header:], uint32(f[1]))
			if _, err := c.Write(out[:header+f[0]]); err != nil {
				return err
			}
			body, err := r.Next()
			if err != nil {
				return err
			}
			if len(body) != f[1] {
				return fmt.Errorf("an echo of %d bytes, want %d", len(body), f[1])
			}
		}
		return nil
	}
	return turn, func() { _ = c.Close() }, nil
}
