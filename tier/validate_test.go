package tier

import "fmt"

// Check returns what is wrong with the structures of a store, as far as they can be compared with each other.
func Check(s *Store) (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	checkFlights(s, note)
	checkDebts(s, note)
	if int(s.promoted.size.Load()) != len(s.promoted.kept) {
		note("%d kept objects, counted %d", len(s.promoted.kept), s.promoted.size.Load())
	}
	pinned := s.promoted.lease.State().Pinned
	if len(pinned) != len(s.promoted.kept) && !s.stopping {
		note("%d kept objects, the lease has %d", len(s.promoted.kept), len(pinned))
	}
	for k, n := range s.deleting {
		if n <= 0 {
			note("%d deletions of %v", n, k)
		}
	}
	return wrong
}

func checkFlights(s *Store, note func(string, ...any)) {
	untold := 0
	for lease, flights := range s.asked {
		if len(flights) == 0 {
			note("lease %q asked for nothing", lease)
		}
		for k, f := range flights {
			if _, ok := f.asked[lease]; !ok || f.key != k {
				note("lease %q asked for %v, which has forgotten it", lease, k)
			}
			if f.ended {
				untold++
			} else if s.flights[k] != f {
				note("lease %q asked for another flight of %v", lease, k)
			}
		}
	}
	if untold != s.untold {
		note("%d failures to report, counted %d", untold, s.untold)
	}
	for k, f := range s.flights {
		for lease := range f.asked {
			if s.asked[lease][k] != f {
				note("%v is wanted by lease %q, which is not listed", k, lease)
			}
		}
		if f.ended || f.waits < 0 || f.reads < 0 || f.reads > f.waits {
			note("flight %v: ended %v, %d wait, %d read", k, f.ended, f.waits, f.reads)
		}
		if f.job == nil && f.parent == nil {
			note("nobody has flight %v", k)
		}
		if f.job != nil && f.job.index >= 0 && s.queue.jobs[f.job.index] != f.job {
			note("the job of %v is not where it should be", k)
		}
	}
	var queued int64
	for i, j := range s.queue.jobs {
		queued += j.size
		if j.index != i || j.running {
			note("job %d of the queue: index %d, running %v", i, j.index, j.running)
		}
		var size int64
		for _, n := range j.tenants {
			size += n
		}
		if j.tenants != nil && size != j.size {
			note("a job of %d bytes has tenants with %d", j.size, size)
		}
	}
}

func checkDebts(s *Store, note func(string, ...any)) {
	var bytes int64
	of := map[string]int64{}
	lists := 0
	for k, d := range s.owed.debts {
		if d.object.Key != k || d.left == 0 && d.users == 0 && d.writing == 0 {
			note("debt %v: of %v, owed to %b", k, d.object.Key, d.left)
		}
		if d.charged != (d.left != 0 && d.held) {
			note("debt %v: counted %v, owed to %b", k, d.charged, d.left)
		}
		if d.charged {
			bytes += d.object.Size
			of[d.object.Tenant] += d.object.Size
		}
		for _, l := range s.lower {
			bit := uint32(1) << l.index
			if d.queued[l.index] != nil {
				lists++
			}
			if owed := d.left&bit != 0; owed != (d.queued[l.index] != nil || d.left&d.writing&bit != 0) {
				note("debt %v: owed to %s %v, queued %v, written %v", k, l.name, owed, d.queued[l.index] != nil, d.writing&bit != 0)
			}
		}
	}
	for tenant, n := range s.owed.of {
		if of[tenant] != n {
			note("%d bytes are owed for tenant %q, counted %d", of[tenant], tenant, n)
		}
		delete(of, tenant)
	}
	for tenant, n := range of {
		if n != 0 {
			note("%d bytes are owed for tenant %q, counted none", n, tenant)
		}
	}
	if bytes != s.owed.bytes {
		note("%d bytes are owed, counted %d", bytes, s.owed.bytes)
	}
	for _, l := range s.lower {
		lists -= l.fifo.Len()
	}
	if lists != 0 {
		note("lists of levels lack %d debts", lists)
	}
	held := 0
	for range s.owed.lease.State().Pinned {
		held++
	}
	unheld := 0
	for _, d := range s.owed.debts {
		if !d.held {
			unheld++
		}
	}
	if unheld != s.owed.unheld {
		note("%d debts are not held, counted %d", unheld, s.owed.unheld)
	}
	if held != len(s.owed.debts)-unheld && !s.stopping {
		note("%d debts, %d of them not held, the lease has %d", len(s.owed.debts), unheld, held)
	}
}

// Queued ends the idle state of a test: it returns jobs, flights, and failures that are still to be reported.
func Queued(s *Store) (jobs, flights, untold int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.Len(), len(s.flights), s.untold
}
