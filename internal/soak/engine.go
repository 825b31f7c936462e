package main

import (
	"fmt"
	"os"
)

// This file has what a part does in place of an engine: it sends requests to readers, and finishes or aborts
// them.

// handle handles a line or the end of a child.
func (p *part) handle(e event) error {
	if e.m == nil {
		return p.exited(e)
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
		err = p.handleReader(e.from, *e.m)
	default:
		err = p.handleWriter(e.from, *e.m)
	}
	if err != nil {
		p.s.n.losses.Add(1)
		return fmt.Errorf("%s: %w", e.from.name, err)
	}
	return nil
}

func (p *part) handleWriter(w *process, m message) error {
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
			if err := p.ledger.checkAdoption(*m.Adoption, m.Objects, p.store.Kind != "cache"); err != nil {
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
		p.ledger.addKey(m.Objects[0])
	case "removed":
		return p.ledger.removeKey(m.Objects[0])
	case "sent":
		p.s.n.operations.Add(int64(1 + len(m.Objects)))
		if p.willReset() {
			p.ledger.addHistory(m.Objects)
			return nil
		}
		return p.dispatch(m)
	case "fence":
		if p.ledger.addFence(m.Fence) {
			w.send(message{Kind: "pass", Fence: m.Fence})
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
	f, err := p.ledger.addRequest(m.Request, m.Objects, p.readers)
	if err != nil {
		return err
	}
	read := message{Kind: "read", Request: m.Request, Objects: m.Objects}
	for _, r := range p.readers {
		r.send(read)
	}
	if len(p.readers) == 0 { // they have ended, and the writer ends soon
		p.answered(f.id, nil)
	} else if p.rng.IntN(8) == 0 {
		f.ended = true
		p.writer.send(message{Kind: "abort", Request: f.id})
	}
	if len(p.ledger.history) > 0 && p.rng.IntN(10) == 0 && len(p.readers) > 0 {
		late := message{Kind: "read", Request: "late", Late: true}
		for range 8 {
			late.Objects = append(late.Objects, p.ledger.history[p.rng.IntN(len(p.ledger.history))])
		}
		p.readers[p.rng.IntN(len(p.readers))].send(late)
	}
	return nil
}

func (p *part) handleReader(r *process, m message) error {
	switch m.Kind {
	case "ready":
		r.ready = true
		if !p.killing {
			p.s.growth.watch(r)
		}
		return nil
	case "absent": // its writer has just ended and removed the segment
		if _, err := os.Stat(p.s.path(p.store.Name)); err == nil {
			return fmt.Errorf("the segment is there, but: %s", m.Text)
		}
		r.ending = true
		return nil
	case "done":
		p.firstAnswer()
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
	f, passed := p.ledger.markRead(id, r)
	if p.writer == nil {
		return
	}
	if f != nil && !f.ended {
		end := "finish"
		if p.rng.IntN(4) == 0 {
			end = "abort"
		}
		p.writer.send(message{Kind: end, Request: f.id})
	}
	p.passFences(passed)
}

func (p *part) passFences(fences []int) {
	for _, n := range fences {
		p.writer.send(message{Kind: "pass", Fence: n})
	}
}
