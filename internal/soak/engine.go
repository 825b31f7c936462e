package main

import (
	"fmt"
	"os"
)

// What a part does in the place of an engine: it hands requests to readers, and ends them.

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
