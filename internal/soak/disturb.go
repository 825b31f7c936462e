package main

import (
	"fmt"
	"time"

	"github.com/ringcache/ringcache/shmring/segment"
)

// pause returns the time until the next disturbance. Short ones hit a child while it starts.
func (p *part) pause() time.Duration {
	if p.rng.IntN(4) == 0 {
		return time.Duration(p.rng.Int64N(int64(60 * time.Millisecond)))
	}
	return time.Duration(p.rng.Int64N(int64(3 * time.Second)))
}

// disturb kills, stops, or ends a child, or lets it go on.
func (p *part) disturb() error {
	all := p.processes()
	if p.ending || len(all) == 0 {
		return nil
	}
	for _, c := range all {
		if c.stopped {
			if c.resume(); p.rng.IntN(3) == 0 {
				p.killIfAllowed(c)
			}
			return nil
		}
	}
	c := all[p.rng.IntN(len(all))]
	if p.rng.IntN(2) == 0 && p.writer != nil {
		c = p.writer
	}
	switch n := p.rng.IntN(10); {
	case !c.ready && p.rng.IntN(4) > 0: // else no child would become ready on a busy machine
	case c.ending:
		p.killIfAllowed(c)
	case n < 3:
		p.s.n.stops.Add(1)
		c.stop()
		p.timer.Reset(time.Duration(p.rng.Int64N(int64(time.Second))))
	case n < 5 && c == p.writer && c.ready && p.killing:
		p.s.n.ends.Add(1)
		c.ending, c.keepsSegment = true, true
		c.send(message{Kind: "end", Keep: true})
	default:
		p.killIfAllowed(c)
	}
	return nil
}

func (p *part) killIfAllowed(c *process) {
	if p.killing && !c.killed {
		if c == p.writer {
			p.s.n.writerKills.Add(1)
		} else {
			p.s.n.readerKills.Add(1)
		}
		c.kill()
	}
}

// writerExited starts the next writer: it adopts the segment, or makes a new one with new
// readers if there is nothing to adopt.
func (p *part) writerExited(c *process) error {
	p.ledger.writerEnded(c.killed)
	if p.adopt {
		if p.ending && !c.killed && !c.keepsSegment { // it has removed the segment
			p.endReaders()
			return nil
		}
		return p.startWriter()
	}
	if err := p.sweep(c); err != nil {
		return err
	}
	if p.ending {
		p.endReaders()
		return nil
	}
	p.dropReaders()
	return p.newSegment()
}

// sweep removes the segment of a dead writer as an operator would: a FIFO, or one whose
// writer was killed while it made it.
func (p *part) sweep(c *process) error {
	swept, err := segment.Sweep(segment.SweepOptions{Prefix: p.store.Name, Owner: "soak", Remove: true,
		Dir: p.store.Dir})
	if err != nil {
		return err
	}
	for _, s := range swept {
		switch {
		case !c.killed:
			return fmt.Errorf("%s ended as ordered and left %s", c.name, s.Name)
		case s.Alive || !s.Removed || s.Damage != nil:
			return fmt.Errorf("%s of a killed writer was not removed: %+v", s.Name, s)
		}
		p.s.n.swept.Add(1)
	}
	if left := leftFiles(p.s.path(p.store.Name)); len(left) > 0 {
		return fmt.Errorf("%s ended, and after the sweep there are %q", c.name, left)
	}
	return nil
}

// readerExited replaces a reader that was killed, or the whole engine.
func (p *part) readerExited(c *process) error {
	switch {
	case p.ending:
		for id, f := range p.ledger.unread {
			if f.waiting[c] {
				p.answered(id, c) // it reads nothing more
			}
		}
		return nil
	case p.store.Kind == "fifo" || p.rng.IntN(2) == 0:
		p.dropReaders()
		p.restarting = true
		if p.exiting == 0 {
			return p.restarted()
		}
		return nil
	}
	if err := p.startReaders(); err != nil {
		return err
	}
	next := p.readers[len(p.readers)-1]
	for _, f := range p.ledger.unread {
		if f.waiting[c] {
			delete(f.waiting, c)
			f.waiting[next] = true
			next.send(message{Kind: "read", Request: f.id, Objects: f.objects})
		}
	}
	return nil
}

// restarted orders the writer to reset its readers, after all of them have ended.
func (p *part) restarted() error {
	p.restarting = false
	p.s.n.restarts.Add(1)
	if passed := p.ledger.dropRequests(); p.writer != nil {
		p.passFences(passed)
		p.reset()
	}
	if p.writer == nil || !p.writer.ready && !p.adopt {
		return nil
	}
	return p.startReaders()
}

// dropReaders kills all readers, since the engine is restarted.
func (p *part) dropReaders() {
	for _, r := range p.readers {
		p.exiting++
		if !r.killed {
			p.s.n.readerKills.Add(1)
		}
		r.kill()
	}
	p.readers = nil
}
