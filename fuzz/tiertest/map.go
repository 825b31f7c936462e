package tiertest

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"sync"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Map is a level on the heap: tier.Level and tier.MemoryLevel in the plainest way, for tests of what
// stands on levels. It evicts the object that was not used for the longest time of those
// that it may evict. It is slow with many objects: it searches all of them for each eviction.
//
// Other processes can't see it. What lies at an offset is returned by [Map.At].
type Map struct {
	o MapOptions

	mu      sync.Mutex
	closed  bool
	calls   sync.WaitGroup
	objects map[tier.Key]*entry
	// dropped objects are in no answer any more, but a lease has their bytes.
	dropped          map[*entry]bool
	leases           map[string]*mapLease
	leased           tier.Charge // what all those with an account have
	bytes            int64
	clock            int64 // of uses
	next             uint64
	evicted, corrupt int64
}

var _ tier.MemoryLevel = (*Map)(nil)

// MapOptions configure a [Map]. The zero value has no limit.
type MapOptions struct {
	// Name is what [Map.Name] returns, "map" if empty.
	Name string
	// Capacity is the most bytes of objects with their overhead; 0 is no limit.
	Capacity int64
	// Overhead is counted for each object, beside its size.
	Overhead int64
	// Now is the clock that ends leases, time.Now if nil.
	Now func() time.Time
}

// What the bytes of an object are.
type state int

const (
	writing  state = iota // by a Put
	reserved              // by a lease
	there
)

type entry struct {
	tier.Object
	bytes   []byte
	sum     uint32 // of bytes, once they are there
	offset  uint64
	state   state
	owner   *mapLease // of a reservation
	pins    int       // leases that pin it
	used    int64     // when, by the clock of uses
	charged int64     // leases with an account that have it
}

func (x *entry) held() bool { return x.state != there || x.pins > 0 }

// NewMap returns an empty level. It panics if a number of the options is negative.
func NewMap(o MapOptions) *Map {
	if o.Capacity < 0 || o.Overhead < 0 {
		panic(fmt.Sprintf("tiertest: a Map of capacity %d with an overhead of %d", o.Capacity, o.Overhead))
	}
	if o.Name == "" {
		o.Name = "map"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Map{o: o, objects: map[tier.Key]*entry{}, dropped: map[*entry]bool{}, leases: map[string]*mapLease{},
		next: 64}
}

// Name implements tier.Level.
func (m *Map) Name() string { return m.o.Name }

// begin starts a call, unless the level is closed. The caller has m.mu.
func (m *Map) begin() error {
	if m.closed {
		return fmt.Errorf("tiertest: level %s: %w", m.o.Name, fs.ErrClosed)
	}
	m.calls.Add(1)
	m.expire()
	return nil
}

// Close implements tier.Level.
func (m *Map) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.calls.Wait()
	return nil
}

// Reopen ends the level as a kill of its process would, and returns a level that has
// what a shared segment would have kept: objects, leases, and reservations with their bytes. What Put was
// writing is gone.
func (m *Map) Reopen() *Map {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	n := NewMap(m.o)
	n.next, n.clock = m.next, m.clock
	moved := map[*entry]*entry{}
	for key, x := range m.objects {
		if x.state == writing {
			continue
		}
		y := *x
		y.charged = 0
		moved[x], n.objects[key] = &y, &y
		n.bytes += m.size(x.Object)
	}
	for x := range m.dropped {
		y := *x
		y.charged = 0
		moved[x], n.dropped[&y] = &y, true
		n.bytes += m.size(x.Object)
	}
	for id, l := range m.leases {
		k := &mapLease{m: n, id: id, owner: l.owner, until: l.until, fromRestart: true}
		for _, x := range l.pinned {
			k.pinned = append(k.pinned, moved[x])
		}
		for _, x := range l.reserved {
			moved[x].owner = k
			k.reserved = append(k.reserved, moved[x])
		}
		n.leases[id] = k
	}
	return n
}

// Usage implements tier.Level.
func (m *Map) Usage() tier.Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	u := tier.Usage{Bytes: m.bytes, Capacity: m.o.Capacity, Evicted: m.evicted, Corrupt: m.corrupt,
		Tenants: map[string]int64{}}
	count := func(x *entry) {
		if x.held() {
			u.Held += m.size(x.Object)
		}
		if x.Tenant != "" {
			u.Tenants[x.Tenant] += m.size(x.Object)
		}
	}
	for _, x := range m.objects {
		if x.state == there {
			u.Objects++
		}
		count(x)
	}
	for x := range m.dropped {
		count(x)
	}
	return u
}

// Damage changes the last byte of an object behind the level's back, and reports whether there was one.
func (m *Map) Damage(k tier.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.objects[k]
	if x == nil || x.state != there || x.Size == 0 {
		return false
	}
	bytes := append([]byte(nil), x.bytes...) // a reader may still use the old ones
	bytes[len(bytes)-1] ^= 1
	x.bytes = bytes
	return true
}

// At returns the n bytes at an offset of the segment, nil if no object has all of them.
func (m *Map) At(offset uint64, n int64) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.objects {
		if x.offset <= offset && n >= 0 && offset+uint64(n) <= x.offset+uint64(x.Size) {
			return x.bytes[offset-x.offset:][:n:n]
		}
	}
	return nil
}

// Segment implements tier.MemoryLevel. It has no name: there is nothing to map.
func (m *Map) Segment() tier.Segment { return tier.Segment{Size: math.MaxInt64, Generation: 1} }

// size is what is counted for an object.
func (m *Map) size(o tier.Object) int64 { return o.Size + m.o.Overhead }

// find returns an object whose bytes are complete. The errors are those of Stat.
func (m *Map) find(k tier.Key) (*entry, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	x := m.objects[k]
	switch {
	case x == nil:
		return nil, fmt.Errorf("tiertest: level %s: object %v: %w", m.o.Name, k, tier.ErrNotFound)
	case x.state != there:
		return nil, fmt.Errorf("tiertest: level %s: object %v: %w", m.o.Name, k, tier.ErrPending)
	}
	return x, nil
}

func (m *Map) use(x *entry) {
	m.clock++
	x.used = m.clock
}

// add makes room for an object and takes it. Its bytes are not there yet.
func (m *Map) add(o tier.Object, s state) (*entry, error) {
	if o.Size > math.MaxInt64-m.o.Overhead || o.Size > math.MaxInt32 || m.o.Capacity > 0 && m.size(o) > m.o.Capacity {
		return nil, fmt.Errorf("tiertest: level %s: object %v has %d bytes: %w", m.o.Name, o.Key, o.Size,
			tier.ErrTooLarge)
	}
	// In the index from here on: so its parent has a child, and stays.
	x := &entry{Object: o, state: s, offset: m.next}
	m.objects[o.Key] = x
	for m.o.Capacity > 0 && m.bytes+m.size(o) > m.o.Capacity {
		victim := m.victim()
		if victim == nil {
			delete(m.objects, o.Key)
			return nil, fmt.Errorf("tiertest: level %s: object %v has %d bytes: %w", m.o.Name, o.Key, o.Size,
				tier.ErrFull)
		}
		m.remove(victim)
		m.evicted++
	}
	x.bytes = make([]byte, o.Size)
	m.next += uint64(o.Size+63)/64*64 + 64
	m.bytes += m.size(o)
	m.use(x)
	return x, nil
}

// victim returns the object that was not used for the longest time, of those that are not held
// and that are no parent of another one.
func (m *Map) victim() *entry {
	parents := map[tier.Key]bool{}
	for _, x := range m.objects {
		if k, ok := x.ParentKey(); ok {
			parents[k] = true
		}
	}
	var oldest *entry
	for k, x := range m.objects {
		if !x.held() && !parents[k] && (oldest == nil || x.used < oldest.used) {
			oldest = x
		}
	}
	return oldest
}

// remove takes an object out of the index, and gives its room up.
func (m *Map) remove(x *entry) {
	delete(m.objects, x.Key)
	m.bytes -= m.size(x.Object)
}

// publish ends the writing of an object.
func (m *Map) publish(x *entry) {
	x.state, x.owner, x.sum = there, nil, crc32.ChecksumIEEE(x.bytes)
}

// drop takes a damaged object out of the index. Its room goes with its last pin.
func (m *Map) drop(x *entry) {
	m.corrupt++
	m.remove(x)
	if x.pins > 0 {
		m.dropped[x] = true
		m.bytes += m.size(x.Object)
	}
}
