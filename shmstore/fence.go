package objstore

// Fence is a moment in the order of what was sent to the engine.
type Fence struct {
	w *Writer
	n uint64
}

// Fence marks the moment. Take it, then send a call that every worker executes in
// order behind everything sent before (a collective call; the answer of the
// engine's loop alone proves nothing, since a batch may be on its way to the
// workers), and call Passed when all have answered. Handles without a request
// (Writer.Put, Writer.Lookup) that were issued before count as sent before.
func (w *Writer) Fence() Fence {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.life.(*pool)
	if !ok {
		return Fence{w: w}
	}
	p.fence++
	return Fence{w, p.fence - 1}
}

// Passed says that the workers have drained everything sent before the fence was
// taken: what was aborted before is free of quarantine. With FIFO it does
// nothing.
func (f Fence) Passed() {
	if f.w == nil {
		return
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if p, ok := f.w.life.(*pool); ok && !f.w.closed {
		_ = f.w.sv.guard(Handle{}, func() error { p.passed(f.n); return nil })
	}
}

// ResetReaders says that the engine was restarted: the processes that read so far
// are gone, and readers new ones (0: as many as before) will read from now on.
// Every lease of a request that was sent ends, quarantine ends, and counts begin
// anew; the contents stay. Requests that were not sent yet go on, and their
// handles stay good.
func (w *Writer) ResetReaders(readers int) error {
	if readers == 0 {
		readers = w.readers
	}
	o := w.opt
	o.Readers = readers
	if err := o.Validate(); err != nil {
		return err
	}
	if err := w.lock(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	if c := w.sv.seg.Control(); c != nil { // first: if it is gone, nothing is reset
		err := w.sv.guard(Handle{}, func() error {
			s := c.State()
			s.Readers = readers
			c.SetState(s)
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.readers = readers
	w.resets++
	for id, r := range w.requests {
		if r.state == requestSent {
			r.setState(requestEnded)
			delete(w.requests, id)
		}
	}
	for _, o := range w.objects {
		if o.state == reserved || o.state == discarded {
			continue
		}
		o.leases -= o.sent
		w.leases -= o.sent
		o.sent = 0
		o.uses, o.written, o.base = o.unsent, 0, 0
		w.setReads(o.address, 0)
		if p, ok := w.life.(*pool); ok && o.quarantined != nil {
			p.leave(o)
		}
	}
	for _, o := range w.objects { // which may drop retired ones
		_ = w.life.changed(o) // what the sidecar has is more cautious
	}
	w.wakeShutdown()
	return nil
}
