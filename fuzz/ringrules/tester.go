package ringrules

import (
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
	"github.com/ringcache/ringcache/fuzz/model"
)

// tester performs operations with one ring after the other and checks the invariants.
type tester struct {
	*Plan
	ring  Ring // nil: there is none, and operations are left out
	size  int
	first uint32
	model *model.FIFO // nil without Release

	live, stale []Chunk
	issued      map[uint32]int
	byOp        map[int]uint32 // ids of all chunks by the IDs of the operations that allocated them
	at          State
	performed   []performed

	watch  func(s *Step, write func()) // around what writes to memory; nil outside Crash
	broken *fuzz.Failure               // found by watch
}

// Run performs a sequence on a ring of its own, frees everything at its end, and returns what failed,
// nil if nothing did.
func (p *Plan) Run(ops []fuzz.Op) (failure *fuzz.Failure) {
	t := &tester{Plan: p}
	defer rules.Recover(&failure, t.lines)
	for _, op := range ops {
		if f := t.do(op); f != nil {
			return f
		}
	}
	return t.drain()
}

func (t *tester) do(op fuzz.Op) *fuzz.Failure {
	switch op.Name {
	case "ring.new":
		return t.create(integer(op.Args["size"]), uint32(integer(op.Args["first_id"])))
	case "ring.alloc":
		return t.alloc(integer(op.Args["size"]), op.ID)
	case "ring.free":
		return t.free(t.ids(op))
	case "ring.clear":
		return t.clear()
	case "ring.close":
		f := t.drain()
		t.ring = nil
		return f
	}
	return nil // each operation is followed by a look at the header and the state
}

func integer(v any) int {
	switch v := v.(type) {
	case int:
		return v
	case int64:
		return int(v)
	}
	return 0
}

// ids returns the ids that a ring.free names; a reference is the id of the chunk that its
// operation allocated, live or not.
func (t *tester) ids(op fuzz.Op) []uint32 {
	if all, _ := op.Args["all"].(bool); all {
		return t.liveIDs()
	}
	list, _ := op.Args["ids"].([]any)
	var ids []uint32
	for _, v := range list {
		ref, ok := v.(fuzz.Ref)
		if !ok {
			ids = append(ids, uint32(integer(v)))
			continue
		}
		if id, ok := t.byOp[ref.Op]; ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *tester) liveIDs() []uint32 {
	var ids []uint32
	for _, c := range t.live {
		ids = append(ids, c.ID)
	}
	return ids
}

func (t *tester) create(size int, first uint32) *fuzz.Failure {
	t.ring = nil
	if size <= HeaderSize || first >= idLimit { // only the minimizer comes here
		return nil
	}
	t.performed = append(t.performed[:0], performed{name: "ring.new", size: size, first: first})
	t.start(t.new(size, first), size, first)
	return nil
}

func (t *tester) start(r Ring, size int, first uint32) {
	t.ring, t.size, t.first = r, size, first
	t.live, t.stale, t.issued, t.byOp = nil, nil, map[uint32]int{}, map[int]uint32{}
	if r == nil {
		return
	}
	t.rings++
	t.at = r.State()
	if t.Release != "" {
		t.model = model.NewFIFO(t.release, len(r.Bytes()), first)
	}
}

func (t *tester) alloc(size, op int) *fuzz.Failure {
	if t.ring == nil {
		return nil
	}
	t.performed = append(t.performed, performed{name: "ring.alloc", size: size})
	s := t.step("ring.alloc")
	s.Size = size
	t.write(s, func() {
		address, id, err := t.ring.Alloc(size)
		if s.Refused = err; err == nil {
			s.New = &Chunk{Address: address, ID: id, Size: size}
		}
	})
	if s.New != nil {
		t.issued[s.New.ID]++
		t.byOp[op] = s.New.ID
		if !s.New.inside(len(s.Memory)) {
			return t.outside(s)
		}
		s.New.Payload = make([]byte, size)
		t.live = append(slices.Clip(t.live), *s.New)
		if t.StaleAtOnce {
			s.Live, s.Stale = t.live, t.stale
			s.stale = staleMatches(s)
		}
		t.write(s, func() { fill(s.Memory, *s.New, t.stale) })
		if p, ok := t.ring.(Publisher); ok {
			t.write(s, func() { p.Publish(s.New.ID) })
		}
	}
	if t.model != nil {
		if address, id, err := t.model.Alloc(size); err == nil {
			s.expected.added = &Chunk{Address: uint64(address), ID: id}
		}
	}
	return t.check(s)
}

// outside ends the sequence for a chunk that can't be filled.
func (t *tester) outside(s *Step) *fuzz.Failure {
	t.ring = nil
	s.Live = []Chunk{*s.New}
	if slices.Contains(t.Without, bounds.Name) {
		return nil
	}
	return t.failure(bounds.Name, bounds.Why, bounds.Holds(s))
}

// fill writes a payload in which every byte is above 127, so that no four of them are an id, and in
// which none equals the byte of a stale id at its place: an id that is covered in part is gone, too.
func fill(memory []byte, c Chunk, stale []Chunk) {
	begin := c.Offset(len(memory)) + HeaderSize
	for i := range c.Payload {
		c.Payload[i] = byte(c.ID)*31 + byte(i)*7 | 0x80
	}
	for again := true; again; {
		again = false
		for _, old := range stale {
			for k := range 4 {
				i := old.Offset(len(memory)) + k - begin
				if i >= 0 && i < c.Size && c.Payload[i] == byte(old.ID>>(8*k)) {
					c.Payload[i] = c.Payload[i] + 1 | 0x80
					again = true
				}
			}
		}
	}
	copy(c.payload(memory), c.Payload)
}

func (t *tester) free(ids []uint32) *fuzz.Failure {
	if t.ring == nil {
		return nil
	}
	t.performed = append(t.performed, performed{name: "ring.free", ids: ids})
	s := t.step("ring.free")
	s.Asked = ids
	t.write(s, func() { s.Freed = t.ring.Free(slices.Clone(ids)) })
	t.forget(s.Freed)
	if t.model != nil {
		s.expected.freed = t.model.Free(func(id uint32) bool { return slices.Contains(ids, id) }, len(s.Memory))
	}
	return t.check(s)
}

func (t *tester) clear() *fuzz.Failure {
	if t.ring == nil {
		return nil
	}
	c, ok := t.ring.(Clearer)
	if !ok {
		return t.free(t.liveIDs())
	}
	t.performed = append(t.performed, performed{name: "ring.clear"})
	s := t.step("ring.clear")
	t.write(s, func() {
		c.Clear()
		s.Freed, s.Asked = t.liveIDs(), t.liveIDs()
	})
	t.forget(s.Freed)
	if t.model != nil {
		t.model.Clear()
	}
	return t.check(s)
}

// drain frees everything and takes all of the memory again.
func (t *tester) drain() *fuzz.Failure {
	if t.ring == nil {
		return nil
	}
	if len(t.live) > 0 {
		if f := t.free(t.liveIDs()); f != nil {
			return f
		}
	}
	if n := t.largestOf(t.size); n > 0 {
		return t.alloc(n, 0)
	}
	return nil
}

// largestOf returns the largest payload that a new ring of size bytes takes.
func (t *tester) largestOf(size int) int {
	if n, ok := t.largest[size]; ok {
		return n
	}
	sequence := t.performed
	n := size - HeaderSize
	for ; n > 0; n-- {
		// If the ring breaks now, these are what shows it.
		t.performed = []performed{{name: "ring.new", size: size}, {name: "ring.alloc", size: n}}
		if _, _, err := t.new(size, 0).Alloc(n); err == nil {
			break
		}
	}
	t.performed = sequence
	t.largest[size] = n
	return n
}

func (t *tester) forget(ids []uint32) {
	var stay []Chunk
	for _, c := range t.live {
		if slices.Contains(ids, c.ID) {
			t.stale = append(slices.Clip(t.stale), c)
		} else {
			stay = append(stay, c)
		}
	}
	t.live = stay
}

// step begins an operation.
func (t *tester) step(op string) *Step {
	s := &Step{Op: op, Ring: t.ring, Memory: t.ring.Bytes(), Before: t.at, WasLive: t.live, issued: t.issued,
		largest: func() int {
			return t.largestOf(t.size)
		}}
	if t.model != nil {
		s.expected = &expected{ring: t.model}
	}
	return s
}

func (t *tester) write(s *Step, write func()) {
	if t.watch != nil {
		t.watch(s, write)
	} else {
		write()
	}
}

// check ends an operation.
func (t *tester) check(s *Step) *fuzz.Failure {
	if t.broken != nil {
		return t.broken
	}
	t.at = t.ring.State()
	s.State, s.Listed, s.Live, s.Stale = t.at, t.ring.Live(), t.live, t.stale
	if f := rules.Broken(t.invariants, s, t.lines); f != nil {
		return f
	}
	t.stale = slices.DeleteFunc(slices.Clone(t.stale), func(c Chunk) bool {
		return !c.matches(s.Memory) || c.byChance(s)
	})
	return nil
}
