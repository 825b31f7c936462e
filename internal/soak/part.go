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

// part is a segment with its writer and readers. Only its loop uses its fields.
type part struct {
	s           *supervisor
	name        string
	store       storeOptions
	killing     bool
	firstAnswer func() // called when a request was answered
	plant       string
	rng         *rand.Rand

	ledger  *ledger
	writer  *process
	readers []*process
	exiting int // processes that were replaced and have not ended yet
	events  chan event
	timer   *time.Timer // of the next disturbance
	writers int         // writers started so far
	number  int         // of the segment
	adopt   bool        // the segment is there
	// restarting is set from the kill of all readers, for a restart of the engine, until the last one has
	// ended. resets counts the orders to reset that the writer has not answered.
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
	p.killAll()
	return err
}

// loop handles one event after the other until all processes have ended as ordered.
func (p *part) loop(ctx, stopping context.Context, check <-chan time.Time) error {
	stop := stopping.Done()
	hang := time.NewTimer(hangTime)
	defer hang.Stop()
	for {
		if p.ending && p.writer == nil && len(p.readers) == 0 && p.exiting == 0 {
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
				hang.Reset(hangTime)
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

// hangTime is the longest time without an event.
const hangTime = 5 * time.Minute

func (p *part) processes() []*process {
	all := slices.Clone(p.readers)
	if p.writer != nil {
		all = append(all, p.writer)
	}
	return all
}

// newSegment starts a writer that creates the segment.
func (p *part) newSegment() error {
	p.number++ // a late reader of the last segment must not open the new one
	p.store.Name = fmt.Sprintf("%s%s-%d", p.s.prefix, p.name, p.number)
	p.adopt = false
	p.restarting, p.resets = false, 0
	p.ledger = newLedger()
	return p.startWriter()
}

func (p *part) startWriter() (err error) {
	p.writers++
	args := []string{"--seed", strconv.FormatUint(p.rng.Uint64(), 10), "--life", strconv.Itoa(p.writers)}
	if p.adopt {
		args = append(args, "--adopt")
	}
	if p.plant != "" {
		args = append(args, "--plant", p.plant)
	}
	p.writer, err = p.s.startChild(p.name, "writer", p.writers, p.store, args, p.events)
	if resetPending := p.resets > 0; err == nil {
		p.resets = 0
		if resetPending && !p.restarting { // while restarting, restarted does it
			p.reset()
		}
	}
	return err
}

func (p *part) reset() {
	p.resets++
	p.writer.send(message{Kind: "reset"})
}

// willReset reports whether the writer has to reset its readers: requests that it sends before are not read.
func (p *part) willReset() bool { return p.restarting || p.resets > 0 }

// startReaders starts the readers that are missing.
func (p *part) startReaders() error {
	for !p.restarting && !p.ending && len(p.readers) < p.store.Readers {
		var r *process
		var err error
		if p.s.o.Python != "" && p.store.Kind != "bytes" && len(p.readers) == p.store.Readers-1 {
			cmd := exec.Command(p.s.o.Python, "-c", pythonReader, p.store.Name, strconv.Itoa(p.store.Size),
				strconv.Itoa(p.store.Readers))
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
