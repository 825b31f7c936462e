package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// This file has the ways in which a part ends: as ordered, after a failure, or because it hangs.

// hung makes the children print their stacks, and returns an error with the state of the part.
func (p *part) hung() error {
	p.exiting += len(p.processes())
	for _, c := range p.processes() {
		signalProcess(c.cmd.Process, signalContinue)
		signalProcess(c.cmd.Process, signalStacks)
	}
	for end := time.After(time.Minute); p.exiting > 0; {
		select {
		case e := <-p.events:
			if e.m == nil {
				p.exiting--
				p.s.logs(e.from)
			}
		case <-end:
			p.exiting = 0 // the kernel kills them with this process
		}
	}
	err := fmt.Errorf("nothing has happened for %v: %v", hangTime, p)
	p.writer, p.readers = nil, nil
	return err
}

// String describes what the part waits for.
func (p *part) String() string {
	text := fmt.Sprintf("ending %v, restarting %v, %d resets, %d exiting, fences %v", p.ending, p.restarting,
		p.resets, p.exiting, p.ledger.fences)
	for _, c := range p.processes() {
		text += fmt.Sprintf("; %s: ready %v, stopped %v, killed %v, ending %v", c.name, c.ready, c.stopped, c.killed,
			c.ending)
	}
	for _, f := range p.ledger.unread {
		text += fmt.Sprintf("; request %s waits for %d readers, ended %v", f.id, len(f.waiting), f.ended)
	}
	return text
}

// killAll kills all children, after a failure, and waits until they have ended.
func (p *part) killAll() {
	for _, c := range p.processes() {
		p.exiting++
		c.kill()
	}
	for p.exiting > 0 {
		if e := <-p.events; e.m == nil {
			p.exiting--
			p.s.logs(e.from)
		}
	}
}

// check asks every child for its state.
func (p *part) check() {
	for _, c := range p.processes() {
		if c.ready && !c.asked && !c.ending {
			c.asked = true
			c.send(message{Kind: "check"})
		}
	}
}

// end orders everything to end: the writer first, since readers have to read its last requests.
func (p *part) end() {
	p.ending = true
	for _, c := range p.processes() {
		if c.stopped {
			c.resume()
		}
	}
	if p.writer == nil {
		p.endReaders()
		return
	}
	if p.writer.ready && !p.writer.ending {
		p.writer.ending = true
		p.writer.send(message{Kind: "end"})
	}
}

func (p *part) endReaders() {
	for _, r := range p.readers {
		if !r.ending {
			r.ending = true
			r.send(message{Kind: "end"})
		}
	}
}

// exited handles the exit of a child.
func (p *part) exited(e event) error {
	c := e.from
	defer p.s.growth.unwatch(c)
	if !c.killed && (e.err != nil || !c.ending) {
		p.s.logs(c)
		return fmt.Errorf("%s ended without an order: %w", c.name, errors.Join(e.err, errors.New(c.log.String())))
	}
	switch i := slices.Index(p.readers, c); {
	case c == p.writer:
		p.writer = nil
		return p.writerExited(c)
	case i >= 0:
		p.readers = slices.Delete(p.readers, i, i+1)
		return p.readerExited(c)
	default:
		if p.exiting--; p.exiting == 0 && p.restarting {
			return p.restarted()
		}
	}
	return nil
}
