package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"time"

	_ "embed"
)

// part is a segment with its writer and readers. All of its fields belong to its loop.
type part struct {
	s       *supervisor
	name    string
	store   storeOptions
	killing bool
	begun   func() // its first request was answered
	plant   string
	rng     *rand.Rand

	ledger  *ledger
	writer  *process
	readers []*process
	dying   int // processes that were replaced and have not ended
	events  chan event
	timer   *time.Timer // of the next disturbance
	lives   int         // writers so far
	number  int         // of the segment
	adopt   bool        // the segment is there
	// restarting is the engine's restart: its readers were killed and have not ended. resets
	// are the orders to reset that the writer has not answered.
	restarting bool
	resets     int
	ending     bool
}

//go:embed reader.py
var pythonReader string

func (p *part) run(ctx, stopping context.Context) error {
	p.events, p.timer = make(chan event), time.NewTimer(p.pause())
	defer p.timer.Stop()
	check := time.NewTicker(p.s.interval)
	defer check.Stop()
	err := p.newSegment()
	if err == nil {
		err = p.loop(ctx, stopping, check.C)
	}
	p.reap()
	return err
}

// loop handles one event after the other until all processes have ended by plan.
func (p *part) loop(ctx, stopping context.Context, check <-chan time.Time) error {
	stop := stopping.Done()
	hang := time.NewTimer(hangs)
	defer hang.Stop()
	for {
		if p.ending && p.writer == nil && len(p.readers) == 0 && p.dying == 0 {
			return nil
		}
		var err error
		select {
		case <-ctx.Done():
			return nil // another part failed
		case <-stop:
			stop = nil
			p.end()
		case <-check:
			p.check()
			continue
		case <-p.timer.C:
			p.timer.Reset(p.pause())
			err = p.disturb()
		case e := <-p.events:
			if e.m == nil || e.m.Kind != "state" {
				hang.Reset(hangs)
			}
			err = p.handle(e)
		case <-hang.C:
			return p.hung()
		}
		if err != nil {
			return err
		}
	}
}

// hangs is how long nothing may happen.
const hangs = 5 * time.Minute

func (p *part) processes() []*process {
	all := slices.Clone(p.readers)
	if p.writer != nil {
		all = append(all, p.writer)
	}
	return all
}

// newSegment starts a writer that creates the segment.
func (p *part) newSegment() error {
	p.number++ // a reader of the last one may still come
	p.store.Name = fmt.Sprintf("%s%s-%d", p.s.prefix, p.name, p.number)
	p.adopt = false
	p.restarting, p.resets = false, 0
	p.ledger = newLedger()
	return p.startWriter()
}

func (p *part) startWriter() (err error) {
	p.lives++
	args := []string{"--seed", strconv.FormatUint(p.rng.Uint64(), 10), "--life", strconv.Itoa(p.lives)}
	if p.adopt {
		args = append(args, "--adopt")
	}
	if p.plant != "" {
		args = append(args, "--plant", p.plant)
	}
	p.writer, err = p.s.startChild(p.name, "writer", p.lives, p.store, args, p.events)
	if owed := p.resets > 0; err == nil {
		p.resets = 0
		if owed && !p.restarting { // else when the last reader has ended
			p.reset()
		}
	}
	return err
}

func (p *part) reset() {
	p.resets++
	p.writer.tell(message{Kind: "reset"})
}

// void reports that the writer will reset its readers: what it sends before is never read.
func (p *part) void() bool { return p.restarting || p.resets > 0 }

// startReaders starts those that are missing.
func (p *part) startReaders() error {
	for !p.restarting && !p.ending && len(p.readers) < p.store.Readers {
		var r *process
		var err error
		if p.s.o.Python != "" && p.store.Kind != "bytes" && len(p.readers) == p.store.Readers-1 {
			cmd := exec.Command(p.s.o.Python, "-c", pythonReader, p.store.Name, strconv.Itoa(p.store.Size), strconv.Itoa(p.store.Readers))
			r, err = startProcess(p.name+" Python reader", "reader", cmd, p.s.alive, p.events)
			if err == nil {
				r.python = true
			}
		} else {
			r, err = p.s.startChild(p.name, "reader", 0, p.store, nil, p.events)
		}
		if err != nil {
			return err
		}
		p.readers = append(p.readers, r)
	}
	return nil
}
