package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// link carries frames to the peer in the order of post, unless it is unreliable,
// and the answers back to the calls.
type link struct {
	w          *wire
	report     *report
	out        chan message
	unreliable atomic.Bool
	rng        *rand.Rand

	mu    sync.Mutex
	calls map[uint64]*call

	ids  atomic.Uint64
	once sync.Once
	dead chan struct{} // closed once err is set
	err  error
}

type message struct {
	id    uint64
	frame []byte
}

func newLink(w *wire, r *report, seed uint64) *link {
	l := &link{
		w: w, report: r, out: make(chan message, 256), rng: rand.New(rand.NewPCG(seed, 99)),
		calls: map[uint64]*call{}, dead: make(chan struct{}),
	}
	go func() { l.end(fmt.Errorf("sending: %w", l.send())) }()
	go func() { l.end(fmt.Errorf("receiving: %w", l.receive())) }()
	return l
}

func (l *link) end(err error) {
	l.once.Do(func() {
		l.err = err
		close(l.dead)
		_ = l.w.conn.Close()
	})
}

// post hands a frame over. Its answer goes to c.answer.
func (l *link) post(c *call, r request) error {
	r.ID = l.ids.Add(1)
	frame, err := encode(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.calls[r.ID] = c
	l.mu.Unlock()
	select {
	case l.out <- message{r.ID, frame}:
		return nil
	case <-l.dead:
		return l.err
	}
}

// answered ends a call.
func (l *link) answered(a answer) error {
	l.mu.Lock()
	c := l.calls[a.ID]
	delete(l.calls, a.ID)
	l.mu.Unlock()
	if c == nil {
		return fmt.Errorf("an answer to %d, which was not asked", a.ID)
	}
	c.answer <- a
	return nil
}

func (l *link) receive() error {
	for {
		var a answer
		if err := l.w.read(&a); err != nil {
			return err
		}
		a.Error = string(bytes.ToValidUTF8([]byte(a.Error), nil))
		if err := l.answered(a); err != nil {
			return err
		}
	}
}

// delayed is a frame that lets a few others pass.
type delayed struct {
	message
	pass int
}

func (l *link) send() error {
	var held []delayed
	for {
		m, ok, err := l.next(len(held) > 0)
		if err != nil {
			return err
		}
		if !ok { // no later message comes to overtake
			for _, d := range held {
				if _, err := l.w.Write(d.frame); err != nil {
					return err
				}
			}
			held = held[:0]
			continue
		}
		if l.unreliable.Load() {
			switch l.rng.IntN(50) {
			case 0:
				l.report.count(func(c *counts) { c.Drops++ })
				if err := l.answered(answer{ID: m.id, lost: true}); err != nil {
					return err
				}
				continue
			case 1, 2:
				held = append(held, delayed{m, 1 + l.rng.IntN(6)})
				continue
			}
		}
		if _, err := l.w.Write(m.frame); err != nil {
			return err
		}
		for i := range held {
			if held[i].pass--; held[i].pass == 0 {
				l.report.count(func(c *counts) { c.Swaps++ })
				if _, err := l.w.Write(held[i].frame); err != nil {
					return err
				}
			}
		}
		held = slices.DeleteFunc(held, func(d delayed) bool { return d.pass == 0 })
	}
}

// next waits for a frame, and gives up soon if some are held back.
func (l *link) next(held bool) (m message, ok bool, err error) {
	select {
	case m = <-l.out:
		return m, true, nil
	default:
	}
	if err := l.w.Flush(); err != nil {
		return m, false, err
	}
	var soon <-chan time.Time
	if held {
		soon = time.After(2 * time.Millisecond)
	}
	select {
	case m = <-l.out:
		return m, true, nil
	case <-soon:
		return m, false, nil
	case <-l.dead:
		return m, false, l.err
	}
}
