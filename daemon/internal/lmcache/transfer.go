package lmcache

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/tier"
)

// store is what a worker is writing, by a lease of its own.
type store struct {
	objects []object // that it has reserved
	placed  []tier.Placed
	at      time.Time
}

// call is a call of a worker about a range of chunks.
type call struct {
	c        *client // locked
	span     tracing.Span
	key      rangeKey
	worker   *instance // nil if it is not registered
	from, to int       // chunks
	objects  []object  // of those chunks
	before   []string  // the name of the chunk in front of from; empty if there is none
}

// begin reads a call of a worker. Its client is locked if the error is nil.
func (s *Server) begin(by caller, k *mp.IpcCacheServerKey, instance int64) (q call, err error) {
	c, err := s.clientOf(by)
	if err != nil {
		return call{}, err
	}
	begun := false
	defer func() { // also after a panic
		if !begun {
			c.mu.Unlock()
		}
	}()
	key, err := parseKey(k, s.releaseOf(c))
	if err != nil {
		return call{}, err
	}
	size := s.chunkSize()
	q = call{c: c, span: by.span, key: key, worker: s.workers.workerOf(by, instance, key), from: key.from / size, to: key.to / size}
	if q.worker == nil || q.from == q.to {
		begun = true
		return q, nil
	}
	first := max(0, q.from-1)
	chunks, err := s.chains.names(key.request, key.tokens, first, q.to)
	if err != nil {
		return call{}, err
	}
	spaces, err := spacesOf(q.worker.Layout, key.worker, key.salt)
	if err != nil {
		return call{}, err
	}
	q.before, chunks = chunks[:q.from-first], chunks[q.from-first:]
	q.objects = objectsOf(spaces, chunks, q.from)
	begun = true
	return q, nil
}

// prepareStore takes room for what is not there yet, of the chunks of a range; fewer if there is no room for
// all, so that what is there is a prefix. An unknown worker has nothing to store: an error would end its
// engine.
func (s *Server) prepareStore(by caller, q *mp.PrepareStoreRequest) []byte {
	call, err := s.begin(by, q.GetKey(), q.GetInstanceId())
	if err != nil {
		s.refused("PrepareStore", err)
		return appendContext(nil, nil, true, true)
	}
	defer call.c.mu.Unlock()
	if call.worker == nil {
		return appendContext(nil, nil, true, true)
	}
	groups := len(call.worker.Layout.Groups) > 1
	if call.worker.Inline {
		if s.releaseOf(call.c) == since057 {
			return nil // all bytes come with CommitStore
		}
		return appendContext(nil, nil, true, groups)
	}
	skipped := skippedOf(q, len(call.worker.Layout.Groups))
	st := s.reserve(&call, func(o object) bool { return !skipped[o.group][o.chunk-call.from] })
	slots := make([]slot, len(st.objects))
	for at, i := range byGroup(st.objects, len(call.worker.Layout.Groups)) {
		o, p := st.objects[i], st.placed[i]
		slots[at] = call.slotOf(o, p)
	}
	return appendContext(nil, slots, true, groups)
}

// skippedOf returns the chunks of a range that each group does not store.
func skippedOf(q *mp.PrepareStoreRequest, groups int) []map[int]bool {
	skipped := make([]map[int]bool, groups)
	for g, list := range q.GetSkippedChunks() {
		if g >= groups {
			break
		}
		skipped[g] = map[int]bool{}
		for _, n := range list.GetIndices() {
			skipped[g][int(n)] = true
		}
	}
	return skipped
}

// slotOf is the slot of an object.
func (q *call) slotOf(o object, p tier.Placed) slot {
	return slot{
		offset: int64(p.Offset), length: p.Object.Size, layout: &q.worker.Layout.Groups[o.group],
		chunk: o.chunk - q.from, group: o.group,
	}
}

// storeLease is the lease of what a call stores.
func (q *call) storeLease() string {
	return leaseName("store", q.key.request, q.from) + " " + strconv.Itoa(q.to)
}

// reserve takes room for those objects of a call that which chooses and that are not there yet, in their
// order, until one has no room: from then on nothing of the request is stored that begins behind that one. What the
// lease has reserved already is answered again, if it has it still.
func (s *Server) reserve(q *call, which func(o object) bool) *store {
	wanted := make([]object, 0, len(q.objects))
	objects := make([]tier.Object, 0, len(q.objects))
	layout := q.worker.Layout.Groups
	for i, o := range q.objects {
		if !which(o) {
			continue
		}
		object := tier.Object{
			Key: o.key, Size: layout[o.group].Bytes(), Tenant: tenantOf(q.key.salt), Cost: q.worker.Layout.Cost(o.group, o.chunk),
		}
		if layout[o.group].Window == 0 {
			switch {
			case i >= len(layout):
				object.Parent = q.objects[i-len(layout)].key.Name
			case len(q.before) > 0:
				object.Parent = q.before[0]
			}
		}
		wanted, objects = append(wanted, o), append(objects, object)
	}
	st := &store{at: time.Now()}
	lease := q.storeLease()
	delete(q.c.stores, lease)
	if cut, ok := q.c.cuts[q.key.request]; ok && cut.chunk < q.from {
		return st // it would cost what had room, and is worthless without what had none
	}
	for i, o := range objects {
		parent, ok := o.ParentKey()
		if ok && wanted[i].chunk == q.from && q.c.session.Absent(parent) {
			return st // what was in front of it has gone meanwhile
		}
	}
	delete(q.c.cuts, q.key.request)
	placed, err := q.c.session.Reserve(lease, objects, s.o.Lock)
	if err != nil {
		s.refused("PrepareStore", err)
		return st
	}
	var beyond []tier.Key
	full, noRoom := false, int64(0)
	for i, p := range placed {
		switch {
		case p.Err == nil && full:
			beyond = append(beyond, wanted[i].key)
		case p.Err == nil:
			st.objects, st.placed = append(st.objects, wanted[i]), append(st.placed, p)
		case !errors.Is(p.Err, tier.ErrExists) && !errors.Is(p.Err, tier.ErrPending):
			if !full {
				q.c.noteCut(q.key.request, wanted[i].chunk)
			}
			full = true // what comes after it is worthless without it
			noRoom++
		}
	}
	s.counts.add(func(n *Counts) { n.NoRoom += noRoom + int64(len(beyond)) })
	if len(beyond) > 0 {
		_, _ = q.c.session.Abort(lease, beyond) // it fails if all leases have ended
	}
	if len(st.objects) > 0 {
		q.c.stores[lease] = st
	}
	return st
}

// tenantOf is who is charged for the bytes of a salt.
func tenantOf(salt string) string {
	if len(salt) > tier.MaxTenant {
		return salt[:tier.MaxTenant]
	}
	return salt
}

// commitStore publishes what a worker has reserved for a range, and nothing else.
func (s *Server) commitStore(by caller, q *mp.CommitStoreRequest) bool {
	call, err := s.begin(by, q.GetKey(), q.GetInstanceId())
	if err != nil {
		s.refused("CommitStore", err)
		return false
	}
	defer call.c.mu.Unlock()
	if call.worker == nil {
		return false
	}
	lease := call.storeLease()
	st := call.c.stores[lease]
	delete(call.c.stores, lease)
	if len(q.GetData()) > 0 {
		return s.commitBodies(&call, q)
	}
	var keys []tier.Key
	if st != nil {
		keys = keysOf(st.objects)
	} else if keys, err = call.reserved(lease); err != nil {
		s.refused("CommitStore", err)
	}
	if len(keys) == 0 {
		return false
	}
	s.workers.setMapped(q.GetInstanceId())
	if err := call.commit(lease, keys); err != nil {
		s.refused("CommitStore", err)
		return false
	}
	s.events.stored(&call, keys)
	return true
}

// commit publishes what a lease has reserved.
func (q *call) commit(lease string, keys []tier.Key) error {
	q.span.Want(keys...)
	errs, stored, err := q.c.session.Commit(lease, keys, false, 0)
	q.span.Count(len(keys), stored)
	q.c.session.Count(keys[0].Space, registry.Use{Stored: int64(stored)}, false)
	return errors.Join(append(errs, err)...)
}

// reserved returns what a lease from before a restart has reserved, of the objects of a call.
func (q *call) reserved(lease string) ([]tier.Key, error) {
	placed, err := q.c.session.Get(lease, keysOf(q.objects))
	if err != nil {
		return nil, err
	}
	var keys []tier.Key
	for i, p := range placed {
		if errors.Is(p.Err, tier.ErrPending) {
			keys = append(keys, q.objects[i].key)
		}
	}
	return keys, nil
}

// commitBodies stores bytes that came within a message.
func (s *Server) commitBodies(q *call, m *mp.CommitStoreRequest) bool {
	lease := q.storeLease()
	giveUp := func(err error) bool {
		s.refused("CommitStore", err)
		q.c.release(lease)
		return false
	}
	s.workers.setInline(m.GetInstanceId())
	if s.releaseOf(q.c) != since057 {
		return giveUp(fmt.Errorf("lmcache: the engine can't map the segment %s, and its LMCache sends bytes as a pickle, which is never read; use LMCache 0.5.7, or give the engine the /dev/shm of this server: %w",
			s.o.Segment.Name, fs.ErrInvalid))
	}
	bodies, err := parseBodies(m.GetData(), q)
	if err != nil {
		return giveUp(err)
	}
	body := func(o object) []byte { return bodies[[2]int{o.chunk, o.group}] }
	// What PrepareStore has reserved may have ended meanwhile, and be another's: where the bytes go is asked
	// again.
	st := s.reserve(q, func(o object) bool { return body(o) != nil })
	delete(q.c.stores, lease)
	keys := keysOf(st.objects)
	err = q.c.session.Fill(lease, keys, func(i int, b []byte) { copy(b, body(st.objects[i])) })
	if err == nil && len(keys) > 0 {
		err = q.commit(lease, keys)
	}
	if err != nil {
		return giveUp(err)
	}
	s.events.stored(q, keys)
	q.c.release(lease)
	return true
}

// loadLease is the lease of what a call loads.
func (q *call) loadLease() string {
	return leaseName("load", q.key.request, q.from) + " " + strconv.Itoa(q.to)
}

// prepareRetrieve pins all chunks of a range, or none. With shared memory the answer says where they are,
// otherwise it has the bytes.
func (s *Server) prepareRetrieve(by caller, q *mp.PrepareRetrieveRequest) *mp.PrepareRetrieveResponse {
	p, keys, err := s.load(by, q, false)
	// The limits of the process are no reason to refuse what a look-up has found, and pins already.
	if errors.Is(err, tier.ErrFull) && s.lookUpsPin(by, q.GetKey().GetRequestId(), keys) {
		p, _, err = s.load(by, q, true)
	}
	if err != nil {
		s.refused("PrepareRetrieve", err)
	}
	return p
}

// lookUpsPin reports whether look-ups of a request, of the engine of a worker, pin all of some objects.
func (s *Server) lookUpsPin(by caller, request string, keys []tier.Key) bool {
	missing := make(map[tier.Key]bool, len(keys))
	for _, k := range keys {
		missing[k] = true
	}
	for _, owner := range s.ownersOf(request, by.conn.process) {
		owner.mu.Lock()
		if req := owner.requests[request]; req != nil {
			for _, l := range req.lookups {
				l.pinned(func(k tier.Key) { delete(missing, k) })
			}
		}
		owner.mu.Unlock()
	}
	return len(missing) == 0
}

// load is prepareRetrieve, within the limits of the process, or, with pinned, for what look-ups pin. It also
// returns what it wants to pin.
func (s *Server) load(by caller, q *mp.PrepareRetrieveRequest, pinned bool) (*mp.PrepareRetrieveResponse, []tier.Key, error) {
	none := &mp.PrepareRetrieveResponse{}
	call, err := s.begin(by, q.GetKey(), q.GetInstanceId())
	if err != nil {
		return none, nil, err
	}
	defer call.c.mu.Unlock()
	switch {
	case call.worker == nil, call.from == call.to:
		return none, nil, nil
	case q.GetKey().GetEnd() > int64(len(call.key.tokens)/4): // fewer slots than the engine wants end it
		return none, nil, fmt.Errorf("lmcache: the range ends at %d, and there are %d tokens: %w", q.GetKey().GetEnd(), len(call.key.tokens)/4, fs.ErrInvalid)
	}
	inline := call.worker.Inline
	if inline && s.releaseOf(call.c) != since057 || !inline && !call.worker.Mapped {
		return none, nil, nil
	}
	layout := call.worker.Layout.Groups
	objects := make([]object, 0, len(call.objects))
	for _, o := range call.objects {
		if needs(layout[o.group].Window, o.chunk, call.to) {
			objects = append(objects, o)
		}
	}
	lease := call.loadLease()
	keys := keysOf(objects)
	var placed []tier.Placed
	if pinned {
		placed, err = call.c.session.PinAgain(lease, keys, s.o.Lock)
	} else {
		placed, err = call.c.session.Pin(lease, keys, s.o.Lock, false)
	}
	for _, p := range placed {
		err = errors.Join(err, p.Err)
	}
	if err != nil {
		if !errors.Is(err, tier.ErrFull) { // else it may be tried again
			s.counts.notLoaded(placed)
		}
		call.c.release(lease)
		return none, keys, err
	}
	out := &mp.PrepareRetrieveResponse{Success: true}
	if inline {
		size := 0
		for _, p := range placed {
			size += len(p.Bytes) + bodyOverhead
		}
		if size > s.maxMessage-bodyOverhead { // gRPC would answer an error
			call.c.release(lease)
			return none, keys, fmt.Errorf("lmcache: the chunks have %d bytes, and a message has %d at most", size, s.maxMessage)
		}
		out.Data = appendBodies(nil, layout, objects, placed, call.from)
		s.loaded(&call, objects)
		return out, keys, nil
	}
	slots := make([]slot, len(objects))
	for at, i := range byGroup(objects, len(layout)) {
		o, p := objects[i], placed[i]
		slots[at] = call.slotOf(o, p)
	}
	out.EncodedContext = appendContext(nil, slots, len(layout) > 1, len(layout) > 1)
	s.loaded(&call, objects)
	return out, keys, nil
}

// loaded counts what a worker was given.
func (s *Server) loaded(q *call, objects []object) {
	s.counts.add(func(n *Counts) {
		n.Loaded += int64(q.to - q.from)
		n.Read += int64(len(objects))
	})
}

// byGroup returns the places of objects, one group after the other.
func byGroup(objects []object, groups int) []int {
	out := make([]int, 0, len(objects))
	for g := range groups {
		for i, o := range objects {
			if o.group == g {
				out = append(out, i)
			}
		}
	}
	return out
}

// commitRetrieve ends a load, and what the look-ups of its request have pinned for it.
func (s *Server) commitRetrieve(by caller, q *mp.CommitRetrieveRequest) bool {
	call, err := s.begin(by, q.GetKey(), q.GetInstanceId())
	if err != nil {
		s.refused("CommitRetrieve", err)
		return false
	}
	call.c.release(call.loadLease())
	call.c.mu.Unlock()
	if call.worker == nil {
		return false
	}
	loaded := make(map[tier.Key]bool, len(call.objects))
	for _, o := range call.objects {
		loaded[o.key] = true
	}
	// Engines number their requests alike, so an ID alone does not tell whose look-ups these are.
	done := map[freed]bool{}
	for _, owner := range s.ownersOf(call.key.request, by.conn.process) {
		owner.endReads(call.key.request, done, func(l *lookup, w, i int) bool { return w == call.key.worker && loaded[l.key(w, i)] })
	}
	return true
}

// endReads ends one read of what look-ups of a request have pinned.
func (c *client) endReads(request string, done map[freed]bool, which func(l *lookup, worker, i int) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if req := c.requests[request]; req != nil {
		c.free(req, done, 1, which)
		c.forgetDone(req)
	}
}
