package daemontest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
)

// LieOptions say who lies to whom.
type LieOptions struct {
	Socket   string
	Victim   string // the session of another process
	Requests int    // requests, and parts of requests
	Liars    int    // goroutines
	Seed     uint64
}

// Lie sends requests that are wrong, mutated, cut off, announced and never sent, too many, or whose answers
// nobody reads. It returns how many of which kind were answered, or sent where no answer is wanted. The error
// is about an answer that did not come, or was none.
func Lie(ctx context.Context, o LieOptions) (map[string]int, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left atomic.Int64
	left.Store(int64(o.Requests))
	counts := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range o.Liars {
		wg.Go(func() {
			l := &liar{o: o, number: i, rng: rand.New(rand.NewPCG(o.Seed, uint64(i)))}
			defer l.hangUp()
			for left.Load() > 0 && ctx.Err() == nil {
				name, n, err := l.lie()
				left.Add(-int64(n))
				mu.Lock()
				counts[name] += n
				mu.Unlock()
				if err != nil {
					stop(fmt.Errorf("%s: %w", name, err))
				}
			}
		})
	}
	wg.Wait()
	return counts, context.Cause(ctx)
}

// liar is one goroutine.
type liar struct {
	o       LieOptions
	rng     *rand.Rand
	stalled []net.Conn // connections on which nothing happens any more
	number  int        // of this goroutine
	session int
}

const (
	batch       = 40 // requests on one connection
	mostStalled = 2
	crowded     = 100 // connections of one goroutine
)

func (l *liar) lie() (string, int, error) {
	kinds := []struct {
		weight int
		name   string
		do     func() (int, error)
	}{
		{30, "wrong requests", l.wrong},
		{150, "mutated requests", l.mutated},
		{4, "halves of requests", l.half},
		{4, "false lengths", l.lengths},
		{2, "requests whose answers nobody reads", l.deaf},
		{1, "connections without hello", l.crowdIn},
		{2, "sessions", l.sessions},
		{2, "leases", l.leases},
		{2, "reservations", l.hoard},
		{2, "other people's sessions", l.steal},
	}
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	at := l.rng.IntN(sum)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			n, err := k.do()
			return k.name, n, err
		}
	}
	panic("weights")
}

func (l *liar) dial() (*net.UnixConn, error) {
	end := time.Now().Add(patience)
	for {
		c, err := net.DialTimeout("unix", l.o.Socket, patience)
		if err == nil {
			return c.(*net.UnixConn), c.SetDeadline(end)
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("nobody accepts: %w", err)
		}
		time.Sleep(time.Millisecond) // its queue is full
	}
}

// hello is a right one, with a session of this liar.
func (l *liar) hello() *wire.Request {
	l.session++
	return &wire.Request{ID: 1, Op: wire.Hello, Version: wire.Version, Session: fmt.Sprintf("liar-%d-%d", l.o.Seed, l.rng.IntN(20)), Client: "liar"}
}

// talk sends frames on a connection of its own, and reads what comes until the daemon closes it. It returns
// how many answers that are, but for the one to hello, and at least 1.
func (l *liar) talk(frames [][]byte) (answered int, err error) {
	return l.talkTo(frames, func(*wire.Reply) error { return nil })
}

// talkTo is talk, and judges each answer.
func (l *liar) talkTo(frames [][]byte, judge func(*wire.Reply) error) (answered int, err error) {
	c, err := l.dial()
	if err != nil {
		return 1, err
	}
	defer func() { _ = c.Close() }()
	go func() {
		for _, f := range frames {
			if _, err := c.Write(f); err != nil {
				return
			}
		}
		_ = c.CloseWrite()
	}()
	most := 0 // of answers: what was mutated may be several requests
	for _, f := range frames {
		most += len(f) / 5
	}
	replies := 0
	for r := wire.NewReader(c, wire.MaxReply); ; replies++ {
		body, err := r.Next()
		var bad *wire.Error
		switch {
		case errors.As(err, &bad):
			return 1, fmt.Errorf("an answer is none: %w", err)
		case errors.Is(err, io.EOF), err != nil && replies <= most && !timeout(err): // a reset, since what we sent was not read
			return max(1, replies-1), nil
		case err != nil:
			return 1, fmt.Errorf("%d answers to %d requests, and then: %w", replies, len(frames), err)
		case replies == most:
			return 1, fmt.Errorf("%d answers to %d requests, and more", replies, len(frames))
		}
		var p wire.Reply
		if err := wire.DecodeReply(body, &p); err != nil {
			return 1, fmt.Errorf("an answer is none: %w", err)
		}
		if err := judge(&p); err != nil {
			return 1, err
		}
	}
}

func timeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// stall leaves a connection as it is, for a while.
func (l *liar) stall(c net.Conn) {
	l.stalled = append(l.stalled, c)
	if len(l.stalled) > mostStalled {
		_ = l.stalled[0].Close()
		l.stalled = l.stalled[1:]
	}
}

func (l *liar) hangUp() {
	for _, c := range l.stalled {
		_ = c.Close()
	}
}
