package model

import (
	"maps"

	"github.com/ringcache/ringcache/fuzz"
)

// Store is a model of vLLM's SingleWriterShmObjectStorage
// (vllm/distributed/device_communicators/shm_object_storage.py), with the policy fifo: writers
// and readers by name, and the segments that they share. It performs the operations of the
// family store that vLLM has; others are refused as unsupported.
//
// The model keeps the bytes of a ring, since vLLM reads its counts from there. Segments made
// without a secret have 32 zeros for one.
type Store struct {
	release  Release
	options  StoreOptions
	stores   map[string]*store
	segments map[string]*segment // by the names under which they can be opened
}

// StoreOptions configures [NewStore]. The zero value is vLLM exactly.
type StoreOptions struct {
	// RefuseStaleTouch refuses a reader's touch of a handle whose object is gone. vLLM from 0.12
	// to 0.31 adds 1 to four bytes at the address, if it takes what stands there for a count.
	RefuseStaleTouch bool
}

type segment struct {
	name   string
	secret []byte
	ring   *FIFO
	// values are those of all objects that were stored, by metadata and frames.
	values map[string]map[string]any
}

// store is what an instance of the class is: a writer, or a reader of the same segment.
type store struct {
	*segment
	writes, locked, closed bool // locked: it counts what it reads
	readers                int64
	maxObject              int64
	threshold              int

	handles map[string]handle // vLLM's key_index
	keys    map[uint32]string // id_index
	uses    map[uint32]int64  // writer_flag
	touched map[uint32]bool
}

type handle struct {
	address int
	id      uint32
}

// NewStore returns a model of the stores of a release.
func NewStore(r Release, o StoreOptions) *Store {
	return &Store{release: r, options: o, stores: map[string]*store{}, segments: map[string]*segment{}}
}

// Do implements [fuzz.System]. It never fails.
func (m *Store) Do(ops []fuzz.Op) ([]fuzz.Reply, error) { return doEach(ops, m.do) }

// Close implements [fuzz.System].
func (m *Store) Close() error { return nil }

func (m *Store) do(op fuzz.Op) (map[string]any, error) {
	a := readArgs(op, anyField)
	switch op.Name {
	case "store.create":
		return m.create(a)
	case "store.open":
		return nil, m.open(a)
	}
	f, ok := m.operation(op.Name)
	if !ok {
		return nil, refuse("unsupported", "vLLM has nothing like %s", op.Name)
	}
	s, ok := m.stores[a.text("store")]
	if !ok {
		return nil, invalid("no store %q", a.text("store"))
	}
	ends := op.Name == "store.close" || op.Name == "store.unlink"
	switch {
	case s.closed && ends:
		return nil, nil
	case s.closed:
		return nil, refuse("closed", "store %q is closed", a.text("store"))
	case !s.writes && f.writer:
		return nil, refuse("unsupported", "%s is for the writer", op.Name)
	}
	return f.do(m, s, a)
}

// storeOp is an operation on a store that is open; writer: a reader doesn't have it.
type storeOp struct {
	writer bool
	do     func(*Store, *store, *args) (map[string]any, error)
}

// operation returns what performs an operation.
func (m *Store) operation(name string) (op storeOp, ok bool) {
	switch name {
	case "store.put":
		op = storeOp{true, (*Store).put}
	case "store.cached":
		op = storeOp{true, (*Store).cached}
	case "store.lookup":
		op = storeOp{true, (*Store).lookup}
	case "store.signature":
		op = storeOp{true, (*Store).signature}
	case "store.verify":
		op = storeOp{false, (*Store).verify}
	case "store.get":
		op = storeOp{false, (*Store).get}
	case "store.touch":
		op = storeOp{false, (*Store).touch}
	case "store.release_touches":
		op = storeOp{true, (*Store).releaseTouches}
	case "store.free_unused":
		op = storeOp{true, (*Store).freeUnused}
	case "store.clear":
		op = storeOp{true, (*Store).clear}
	case "store.close":
		op = storeOp{false, (*Store).close}
	case "store.unlink":
		op = storeOp{true, (*Store).unlink}
	case "store.state":
		op = storeOp{true, (*Store).state}
	case "store.peek":
		op = storeOp{false, (*Store).peek}
	}
	return op, op.do != nil
}

func (m *Store) create(a *args) (map[string]any, error) {
	size, okSize := a.integer("size")
	maxObject, okMax := a.integer("max_object")
	readers, okReaders := a.integer("readers")
	if !okSize || !okMax || !okReaders || size < 1 || maxObject < 1 || readers < 1 {
		return nil, invalid("size, max_object and readers have to be numbers above 0")
	}
	if policy := fieldOr[any](a, "policy", "fifo"); policy != "fifo" {
		return nil, refuse("unsupported", "vLLM has no policy %v", policy)
	}
	name, called := a.text("store"), a.text("name")
	if old, ok := m.stores[name]; ok && !old.closed {
		return nil, invalid("store %q exists", name)
	}
	if _, ok := m.segments[called]; ok {
		return nil, refuse("exists_segment", "segment %q exists", called)
	}
	g := &segment{name: called, secret: make([]byte, 32), values: map[string]map[string]any{}}
	g.ring = NewFIFO(m.release, int(size), 0)
	if secret, err := hexBytes(a.text("secret")); err == nil {
		copy(g.secret, secret)
	}
	if called != "" {
		m.segments[called] = g
	}
	threshold, ok := a.integer("threshold")
	if !ok {
		threshold = 256
	}
	s := &store{
		segment: g, writes: true, locked: fieldOr[any](a, "lock", false) != false, readers: readers,
		maxObject: maxObject, threshold: int(threshold),
		handles: map[string]handle{}, keys: map[uint32]string{}, uses: map[uint32]int64{}, touched: map[uint32]bool{},
	}
	m.stores[name] = s
	bytes := size
	if m.release.Signed {
		bytes += 32
	}
	return map[string]any{"name": called, "segment_bytes": bytes}, nil
}

func (m *Store) open(a *args) error {
	name := a.text("store")
	if old, ok := m.stores[name]; ok && !old.closed {
		return invalid("store %q exists", name)
	}
	g, ok := m.segments[a.text("name")]
	if !ok {
		return refuse("not_found", "no segment %q", a.text("name"))
	}
	readers, ok := a.integer("readers")
	if size, okSize := a.integer("size"); !ok || !okSize || readers < 1 || size != int64(len(g.ring.Memory)) {
		return invalid("size and readers have to be those of the segment")
	}
	m.stores[name] = &store{segment: g, locked: fieldOr[any](a, "lock", "") != "", readers: readers}
	return nil
}

// close ends a writer or a reader. A segment ends with its writer; readers that have it keep it.
func (m *Store) close(s *store, _ *args) (map[string]any, error) {
	s.closed = true
	if s.writes {
		return m.unlink(s, nil)
	}
	return nil, nil
}

func (m *Store) unlink(s *store, _ *args) (map[string]any, error) {
	maps.DeleteFunc(m.segments, func(_ string, g *segment) bool { return g == s.segment })
	return nil, nil
}
