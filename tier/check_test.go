package tier

import "fmt"

// notes collects what a check finds wrong.
type notes []string

func (n *notes) note(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

// Check returns what is wrong with the structures of a store, as far as they can be compared with each other.
func Check(s *Store) (wrong []string) {
	wrong = append(wrong, s.fetcher.check()...)
	wrong = append(wrong, s.writes.check()...)
	for _, l := range s.lower {
		wrong = append(wrong, l.health.check()...)
	}
	return wrong
}

func (h *health) check() (n notes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away && h.awaySince.IsZero() {
		n.note("level %s is away, and not since when", h.level.Name())
	}
	if h.away && !h.probing && h.life.ctx.Err() == nil {
		n.note("level %s is away, and nobody probes it", h.level.Name())
	}
	if h.pause < 0 || h.pause > maxPause {
		n.note("level %s: writes pause for %v", h.level.Name(), h.pause)
	}
	return n
}

func (f *fetcher) check() (n notes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checkInterest(&n)
	for k, x := range f.fetches {
		if x.key != k || x.finished || x.waiters < 0 || x.readers < 0 || x.readers > x.waiters {
			n.note("fetch of %v under %v: finished %v, %d wait, %d read", x.key, k, x.finished, x.waiters, x.readers)
		}
		if (x.job == nil) == (x.parent == nil) {
			n.note("fetch of %v: has a job %v, waits for a parent %v", k, x.job != nil, x.parent != nil)
		}
		if x.job != nil && x.job.index >= 0 && f.queue.jobs[x.job.index] != x.job {
			n.note("the job of %v is not where it should be", k)
		}
	}
	for i, j := range f.queue.jobs {
		if j.index != i || j.running {
			n.note("job %d of the queue: index %d, running %v", i, j.index, j.running)
		}
		var size int64
		for _, some := range j.tenants {
			size += some
		}
		if j.tenants != nil && size != j.size {
			n.note("a job of %d bytes has tenants with %d", j.size, size)
		}
	}
	if int(f.promoted.size.Load()) != len(f.promoted.pins) {
		n.note("%d promoted pins, counted %d", len(f.promoted.pins), f.promoted.size.Load())
	}
	if !f.stopped {
		pinned := 0
		for _, k := range f.promoted.lease.State().Pinned {
			if f.promoted.pins[k] != nil {
				pinned++
			} else if f.fetches[k] == nil { // a transfer that has committed, and is about to finish
				n.note("the lease of promoted pins has %v, and nobody knows of it", k)
			}
		}
		if pinned != len(f.promoted.pins) {
			n.note("%d promoted pins, the lease has %d of them", len(f.promoted.pins), pinned)
		}
	}
	for k, count := range f.blocked {
		if count <= 0 {
			n.note("%d deletions of %v", count, k)
		}
	}
	return n
}

func (f *fetcher) checkInterest(n *notes) {
	unreported, answers := 0, map[*fetch]bool{}
	for lease, fetches := range f.interest {
		if len(fetches) == 0 {
			n.note("lease %q has interest in nothing", lease)
		}
		for k, x := range fetches {
			if _, ok := x.leases[lease]; !ok || x.key != k {
				n.note("lease %q has interest in %v, which does not know it", lease, k)
			}
			if x.finished {
				unreported++
				answers[x] = true
			} else if f.fetches[k] != x {
				n.note("lease %q has interest in another fetch of %v", lease, k)
			}
		}
	}
	if unreported != f.unreported || len(answers) != f.answers.Len() {
		n.note("%d answers of %d fetches to report, counted %d of %d", unreported, len(answers), f.unreported, f.answers.Len())
	}
	for k, x := range f.fetches {
		for lease := range x.leases {
			if f.interest[lease][k] != x {
				n.note("lease %q has interest in %v, and is not listed", lease, k)
			}
		}
	}
}

func (w *writeBack) check() (n notes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var bytes int64
	bytesOf := map[string]int64{}
	queued := 0
	var unpinned unpinned
	for k, p := range w.pending {
		if p.key != k || p.object.Key != k || p.left == 0 && p.users == 0 && p.writing == 0 {
			n.note("pending write of %v under %v, for levels %b", p.object.Key, k, p.left)
		}
		if p.charged != (p.left != 0 && p.pinned) {
			n.note("pending write of %v: charged %v, for levels %b", k, p.charged, p.left)
		}
		if p.charged {
			bytes += p.object.Size
			bytesOf[p.object.Tenant] += p.object.Size
		}
		if !p.pinned {
			unpinned.add(p.object, 1)
		}
		for _, l := range w.lower {
			inQueue := p.queued[l.index] != nil
			if inQueue {
				queued++
			}
			if left := p.left.has(l); left != (inQueue || left && p.writing.has(l)) {
				n.note("pending write of %v to %s: left %v, queued %v, written %v", k, l.name, left, inQueue, p.writing.has(l))
			}
		}
	}
	for tenant, have := range w.bytesOf {
		if bytesOf[tenant] != have {
			n.note("%d bytes of tenant %q are charged, counted %d", bytesOf[tenant], tenant, have)
		}
		delete(bytesOf, tenant)
	}
	for tenant, have := range bytesOf {
		if have != 0 {
			n.note("%d bytes of tenant %q are charged, counted none", have, tenant)
		}
	}
	if bytes != w.bytes {
		n.note("%d bytes are charged, counted %d", bytes, w.bytes)
	}
	writers := 0
	for _, q := range w.queues {
		queued -= q.list.Len()
		writers += q.writers
	}
	if queued != 0 {
		n.note("queues of levels lack %d pending writes", queued)
	}
	if writers != w.writers {
		n.note("%d workers write, counted %d", writers, w.writers)
	}
	if unpinned != w.unpinned {
		n.note("%+v of pending writes are not pinned, counted %+v", unpinned, w.unpinned)
	}
	if pinned := len(w.lease.State().Pinned); pinned != len(w.pending)-unpinned.writes && !w.stopped {
		n.note("%d pending writes, %d of them not pinned, the lease has %d", len(w.pending), unpinned.writes, pinned)
	}
	for k, count := range w.blocked {
		if count <= 0 {
			n.note("%d deletions of %v", count, k)
		}
	}
	return n
}

// Queued returns what a store has that is idle: jobs, fetches, and answers that are still to be reported.
func Queued(s *Store) (jobs, fetches, unreported int) {
	f := s.fetcher
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queue.Len(), len(f.fetches), f.unreported
}
