package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// hung has the children print their stacks.
func (p *part) hung() error {
	p.dying += len(p.processes())
	for _, c := range p.processes() {
		signalProcess(c.cmd.Process, signalContinue)
		signalProcess(c.cmd.Process, signalStacks)
	}
	for end := time.After(time.Minute); p.dying > 0; {
		select {
		case e := <-p.events:
			if e.m == nil {
				p.dying--
				p.s.logs(e.from)
			}
		case <-end:
			p.dying = 0 // they die with this process
		}
	}
	err := fmt.Errorf("nothing has happened for %v: %v", hangs, p)
	p.writer, p.readers = nil, nil
	return err
}

// String describes what the part waits for.
func (p *part) String() string {
	text := fmt.Sprintf("ending %v, restarting %v, %d resets, %d dying, fences %v", p.ending, p.restarting, p.resets, p.dying, p.ledger.fences)
	for _, c := range p.processes() {
		text += fmt.Sprintf("; %s: ready %v, stopped %v, killed %v, ending %v", c.name, c.ready, c.stopped, c.killed, c.ending)
	}
	for _, f := range p.ledger.flying {
		text += fmt.Sprintf("; request %s waits for %d readers, ended %v", f.id, len(f.waiting), f.ended)
	}
	return text
}

func (p *part) processes() []*process {
	all := slices.Clone(p.readers)
	if p.writer != nil {
		all = append(all, p.writer)
	}
	return all
}

// reap kills what is left, after a failure, and waits for its end.
func (p *part) reap() {
	for _, c := range p.processes() {
		p.dying++
		c.kill()
	}
	for p.dying > 0 {
		if e := <-p.events; e.m == nil {
			p.dying--
			p.s.logs(e.from)
		}
	}
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
		if owed && !p.restarting { // else it is told when the last reader has ended
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

// handle handles a line or the end of a child.
func (p *part) handle(e event) error {
	if e.m == nil {
		return p.left(e)
	}
	if e.err != nil {
		return fmt.Errorf("%s: %w", e.from.name, e.err)
	}
	if e.m.Error != "" {
		if e.m.Wrong {
			p.s.n.wrong.Add(1)
		} else {
			p.s.n.losses.Add(1)
		}
		return fmt.Errorf("%s: %s", e.from.name, e.m.Error)
	}
	var err error
	switch {
	case e.m.Kind == "state":
		e.from.asked = false
		p.s.growth.goroutines(e.from, e.m.Goroutines)
	case e.from.role == "reader":
		err = p.hearReader(e.from, *e.m)
	default:
		err = p.hearWriter(e.from, *e.m)
	}
	if err != nil {
		p.s.n.losses.Add(1)
		return fmt.Errorf("%s: %w", e.from.name, err)
	}
	return nil
}

func (p *part) hearWriter(w *process, m message) error {
	switch m.Kind {
	case "ready":
		w.ready = true
		if !p.killing {
			p.s.growth.watch(w)
		}
		if p.adopt {
			p.s.n.adoptions.Add(1)
			p.s.n.kept.Add(int64(m.Adoption.Kept))
			p.s.n.bytes.Add(m.Bytes)
			if err := p.ledger.adopted(*m.Adoption, m.Objects, p.store.Kind != "cache"); err != nil {
				return fmt.Errorf("adoption %+v: %w", *m.Adoption, err)
			}
		}
		p.adopt = p.store.Kind != "fifo"
		if p.ending {
			p.end()
			return nil
		}
		return p.startReaders()
	case "added":
		p.s.n.objects.Add(1)
		p.ledger.added(m.Objects[0])
	case "gone":
		return p.ledger.removed(m.Objects[0])
	case "sent":
		p.s.n.operations.Add(int64(1 + len(m.Objects)))
		if p.void() {
			p.ledger.remember(m.Objects)
			return nil
		}
		return p.dispatch(m)
	case "fence":
		if p.ledger.fence(m.Fence) {
			w.tell(message{Kind: "pass", Fence: m.Fence})
		}
	case "reset":
		p.resets--
	default:
		return fmt.Errorf("line %+v", m)
	}
	return nil
}

// dispatch sends a request to the readers.
func (p *part) dispatch(m message) error {
	f, err := p.ledger.sent(m.Request, m.Objects, p.readers)
	if err != nil {
		return err
	}
	read := message{Kind: "read", Request: m.Request, Objects: m.Objects}
	for _, r := range p.readers {
		r.tell(read)
	}
	if len(p.readers) == 0 { // they have ended, and the writer is about to
		p.answered(f.id, nil)
	} else if p.rng.IntN(8) == 0 {
		f.ended = true
		p.writer.tell(message{Kind: "abort", Request: f.id})
	}
	if len(p.ledger.history) > 0 && p.rng.IntN(10) == 0 && len(p.readers) > 0 {
		late := message{Kind: "read", Request: "late", Late: true}
		for range 8 {
			late.Objects = append(late.Objects, p.ledger.history[p.rng.IntN(len(p.ledger.history))])
		}
		p.readers[p.rng.IntN(len(p.readers))].tell(late)
	}
	return nil
}

func (p *part) hearReader(r *process, m message) error {
	switch m.Kind {
	case "ready":
		r.ready = true
		if !p.killing {
			p.s.growth.watch(r)
		}
		return nil
	case "absent": // its writer has just ended, and took the segment along
		if _, err := os.Stat(p.s.path(p.store.Name)); err == nil {
			return fmt.Errorf("the segment is there, but: %s", m.Text)
		}
		r.ending = true
		return nil
	case "done":
		p.begun()
		if r.python {
			p.s.n.python.Store(true)
		}
		p.s.n.operations.Add(m.Reads + m.Gone)
		p.s.n.bytes.Add(m.Bytes)
		p.s.n.late.Add(m.Gone)
		if m.Late {
			return nil
		}
		p.answered(m.Request, r)
		return nil
	}
	return fmt.Errorf("line %+v", m)
}

// answered notes that a reader is done with a request, and ends the request if all are.
func (p *part) answered(id string, r *process) {
	f, passed := p.ledger.read(id, r)
	if p.writer == nil {
		return
	}
	if f != nil && !f.ended {
		end := "finish"
		if p.rng.IntN(4) == 0 {
			end = "abort"
		}
		p.writer.tell(message{Kind: end, Request: f.id})
	}
	p.pass(passed)
}

func (p *part) pass(fences []int) {
	for _, n := range fences {
		p.writer.tell(message{Kind: "pass", Fence: n})
	}
}

// check asks every child for its state.
func (p *part) check() {
	for _, c := range p.processes() {
		if c.ready && !c.asked && !c.ending {
			c.asked = true
			c.tell(message{Kind: "check"})
		}
	}
}

// end has everything end by plan: the writer first, whose last requests are read.
func (p *part) end() {
	p.ending = true
	for _, c := range p.processes() {
		if c.stopped {
			c.proceed()
		}
	}
	if p.writer == nil {
		p.endReaders()
		return
	}
	if p.writer.ready && !p.writer.ending {
		p.writer.ending = true
		p.writer.tell(message{Kind: "end"})
	}
}

func (p *part) endReaders() {
	for _, r := range p.readers {
		if !r.ending {
			r.ending = true
			r.tell(message{Kind: "end"})
		}
	}
}

// left handles the end of a child.
func (p *part) left(e event) error {
	c := e.from
	defer p.s.growth.forget(c)
	if !c.killed && (e.err != nil || !c.ending) {
		p.s.logs(c)
		return fmt.Errorf("%s ended by itself: %w", c.name, errors.Join(e.err, errors.New(c.log.String())))
	}
	switch i := slices.Index(p.readers, c); {
	case c == p.writer:
		p.writer = nil
		return p.writerLeft(c)
	case i >= 0:
		p.readers = slices.Delete(p.readers, i, i+1)
		return p.readerLeft(c)
	default:
		if p.dying--; p.dying == 0 && p.restarting {
			return p.restarted()
		}
	}
	return nil
}
