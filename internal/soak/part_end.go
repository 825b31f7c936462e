package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// How a part ends: by plan, after a failure, or because it hangs.

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
