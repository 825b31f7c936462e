package shmstore

// ObjectState is what a store keeps of one object.
type ObjectState struct {
	Key         string
	Address     uint64
	ID          uint32
	Bytes       int64 // of the chunk, with its header
	Indexed     bool  // Lookup finds it
	Pinned      bool
	Leases      int // of requests that have not ended
	Quarantined bool
	Tenant      string
}

// Stats are sums over the objects of a store, and counts of those who use it.
// Taking them costs the same for any number of objects.
type Stats struct {
	Objects  int   // that Lookup finds
	Chunks   int   // objects, and reservations that are open or not freed yet
	Used     int64 // bytes in use, with padding
	Leases   int   // open
	Requests int   // that have not ended
	Waiting  int   // callers that wait for room
	// Misused is the number of calls of Finish and Abort on requests that were not
	// committed, which do nothing; a Rollback or a Commit is missing.
	Misused int
	Readers int
	// DeadReaders is the number of readers of this library that were found dead.
	DeadReaders int

	// The bytes in use by what keeps them, and the number of objects in quarantine.
	// Those whose counts became complete are found after a while, see [Store.Inspect]
	// for the truth. Ancestors of what is leased, reserved or in quarantine count as leased.
	Reserved, Leased, Quarantined, Evictable int64
	QuarantinedObjects                       int

	// Looked, Woken and Polls count what the store did to make room: objects that were
	// looked at, callers that were woken, and tries of callers that came by a timer.
	Looked, Woken, Polls int

	// Evicted is the number of objects that went to make room, or by [Store.Evict].
	Evicted int
}

// Tenants returns the bytes in use of each tenant.
func (s *Store) Tenants() map[string]int64 {
	if s.lock() != nil {
		return nil
	}
	defer s.mu.Unlock()
	used := make(map[string]int64, len(s.space.tenants))
	for name, t := range s.space.tenants {
		used[name] = t.used
	}
	return used
}

// Stats returns sums, without looking at every object as [Store.Inspect] does.
func (s *Store) Stats() (Stats, error) {
	if err := s.lock(); err != nil {
		return Stats{}, err
	}
	defer s.mu.Unlock()
	_ = s.lifetime.releaseFew(min(maxExamined, s.lifetime.quarantine.len()))
	s.durability.reap()
	return s.stats(), nil
}

func (s *Store) stats() Stats {
	sp, l := &s.space, &s.lifetime
	return Stats{
		Objects: l.index.len(), Chunks: sp.pool.Len(), Used: int64(sp.pool.Used()), Leases: l.leases, Requests: len(l.requests),
		Waiting: sp.waiters.Len(), Misused: l.misused, Readers: l.readers, DeadReaders: s.durability.deadReaders,
		Reserved: sp.bytes[classReserved], Leased: sp.bytes[classLeased] + sp.bytes[classAncestor],
		Quarantined: sp.bytes[classQuarantined], Evictable: sp.evictable(), QuarantinedObjects: l.quarantine.len(),
		Looked: sp.looked + l.examined, Woken: sp.waiters.Woken, Polls: sp.waiters.Polls, Evicted: sp.evicted,
	}
}

// Inspect calls f for every object, by address, and returns sums. Reservations are left
// out. f is called under the store's lock, and must not call the Store. It may look at
// the payload: where the memory is gone, f ends there, and goes on with the next object.
func (s *Store) Inspect(f func(*Object, ObjectState)) (Stats, error) {
	s.mu.Lock()
	n := s.space.pool.Len()
	s.mu.Unlock()
	live := make([]*Object, 0, n) // memory for them all takes a while
	if err := s.lock(); err != nil {
		return Stats{}, err
	}
	defer s.mu.Unlock()
	s.durability.reap()
	st := s.stats()
	st.QuarantinedObjects = 0
	for id := range s.space.pool.Live() {
		if o := s.space.object(id); o.state == committed || o.state == retired {
			live = append(live, o)
		}
	}
	// In one guard but for faults, since one for each object takes longer than all the
	// rest.
	for next := 0; next < len(live); {
		_ = s.durability.guard(func() error {
			for next < len(live) {
				o := live[next]
				next++
				state := s.stateOf(o)
				if state.Quarantined {
					st.QuarantinedObjects++
				}
				if f != nil {
					f(o, state)
				}
			}
			return nil
		})
	}
	return st, nil
}

func (s *Store) stateOf(o *Object) ObjectState {
	state := ObjectState{
		Key: o.Key(), Address: o.chunk.address, ID: o.chunk.id, Bytes: int64(o.chunk.size), Indexed: o.state == committed, Pinned: o.pinned,
		Leases: int(o.leases), Quarantined: o.quarantined, Tenant: o.tenant(),
	}
	if state.Quarantined {
		_ = s.durability.guard(func() error { state.Quarantined = !s.lifetime.quarantineOver(o); return nil })
	}
	return state
}
