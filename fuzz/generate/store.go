package generate

import (
	"fmt"
	"strconv"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// StoreOptions configures [Store]. The zero value is right for the agent.
type StoreOptions struct {
	// Generation is a release of vLLM, 0.33.0 if "". Sequences have the operations that it has.
	Generation string
	// Policy is "fifo" or "pool", fifo if "".
	Policy string
	// Store is what the names of the writer, w, and of the readers, r0 and so on, begin with.
	Store string
	// Segment is the name of the shared memory; if "", whatever the system chooses.
	Segment string
	// Lock is the name of a Python semaphore under which readers count. If "", readers observe,
	// and the writer counts, under a lock of its own: what readers would get it gets instead. The
	// writer of a pool then does not count, and its requests end by what they are told.
	Lock string
	// Size, MaxObject and Readers are those of the store; each is drawn if 0.
	Size, MaxObject, Readers int
	// NoCrash leaves out that a pool's writer goes and another one adopts the segment.
	NoCrash bool
	// BytesOnly: values are pickles of bytes, never tensors, and nothing is reserved.
	BytesOnly bool
	// Unlimited leaves out quotas, limits of the number of objects, and engines that read again.
	Unlimited bool
}

// Store generates sequences for one store, its writer and up to 3 readers. Stores are small, so
// that most of a sequence happens in a full one. Each sequence begins with store.create. For the
// policy fifo it performs the model beside it, so that it can aim at what fits exactly.
func Store(o StoreOptions) fuzz.Generator {
	return func(c *fuzz.Choices, length int) []fuzz.Op {
		s := newStores(c, o)
		step := s.fifoStep
		if s.pool {
			step = s.poolStep
		}
		for len(s.ops)+s.last()+longestStep <= length && c.More() {
			step()
		}
		s.finish()
		return s.ops[:min(len(s.ops), length)]
	}
}

// longestStep is how many operations a step adds at most, with what finish adds for it.
const longestStep = 25

// stores generates one sequence.
type stores struct {
	*fuzz.Choices
	o       StoreOptions
	release model.Release
	pool    bool

	size, maxObject, readers int
	ops                      []fuzz.Op
	creation                 fuzz.Op

	model   *model.Store // of a fifo
	replies map[int]fuzz.Reply

	issued   []issued
	pending  [][]issued // what each reader has to get
	open     []string   // requests that were begun and not committed
	sent     []string   // and those that were committed
	reserved []string   // keys
	requests int
}

// issued is a handle: an operation that returns one, and the key.
type issued struct {
	op      int
	key     string
	request any // that it belongs to; nil: to none
}

func newStores(c *fuzz.Choices, o StoreOptions) *stores {
	if o.Generation == "" {
		o.Generation = "0.33.0"
	}
	release, err := model.Lookup(o.Generation)
	if err != nil {
		release, _ = model.Lookup("0.33.0")
	}
	s := &stores{
		Choices: c, o: o, release: release, pool: o.Policy == "pool", replies: map[int]fuzz.Reply{},
		size: o.Size, maxObject: o.MaxObject, readers: o.Readers, model: model.NewStore(release, model.StoreOptions{}),
	}
	if s.size == 0 {
		if s.pool {
			s.size = 64 * fuzz.Pick(c, 16, 4, 8, 12, 33)
		} else {
			s.size = fuzz.Pick(c, 300, 120, 200, 512, 777, 1000, 2048)
		}
	}
	if s.maxObject == 0 {
		s.maxObject = max(64, fuzz.Pick(c, s.size, s.size/2, s.size/4, 2*s.size, s.size-8))
	}
	if s.pool {
		s.maxObject = min(s.maxObject, s.size)
	}
	if s.readers == 0 {
		s.readers = 1 + c.Int(3)
	}
	s.pending = make([][]issued, s.readers)
	s.create()
	for i := range s.readers {
		s.openReader(i)
	}
	return s
}

// add appends an operation and returns its ID. The model performs it, too.
func (s *stores) add(name, store string, args map[string]any) int {
	all := map[string]any{"store": s.o.Store + store}
	for k, v := range args {
		all[k] = v
	}
	op := fuzz.Op{ID: len(s.ops) + 1, Name: name, Args: all}
	s.ops = append(s.ops, op)
	if !s.pool {
		if r, err := s.model.Do([]fuzz.Op{op.Resolve(s.replies)}); err == nil {
			s.replies[op.ID] = r[0]
		}
	}
	return op.ID
}

func (s *stores) onKey(name, key string) int {
	return s.add(name, "w", map[string]any{"key": key})
}

func (s *stores) create() {
	args := map[string]any{
		"size": s.size, "max_object": s.maxObject, "readers": s.readers, "generation": s.o.Generation,
		"secret": fmt.Sprintf("%064x", 1+len(s.ops)),
	}
	if s.o.Segment != "" {
		args["name"] = s.o.Segment
	}
	switch {
	case s.pool:
		args["policy"] = "pool"
		if s.o.Unlimited {
			break
		}
		if s.Percent(30) {
			args["rereads"] = true
		}
		if s.Percent(25) {
			args["max_objects"] = fuzz.Pick[any](s.Choices, 1, 2, 4)
		}
		if s.Percent(25) {
			args["quota"] = s.size / (2 + s.Int(2))
		}
	case s.o.Lock == "":
		args["lock"] = true
	}
	s.creation = fuzz.Op{ID: s.add("store.create", "w", args), Args: args}
}

func (s *stores) openReader(i int) {
	args := map[string]any{"size": s.size, "max_object": s.maxObject, "readers": s.readers,
		"generation": s.o.Generation, "name": s.segment()}
	if s.o.Lock != "" {
		args["lock"] = s.o.Lock
	}
	s.add("store.open", "r"+strconv.Itoa(i), args)
}

// segment is the name of the shared memory.
func (s *stores) segment() any {
	if s.o.Segment != "" {
		return s.o.Segment
	}
	return fuzz.Ref{Op: s.creation.ID, Field: "name", Else: ""}
}

// keys is how many a sequence has.
const keys = 8

func (s *stores) key() string { return "k" + strconv.Itoa(s.Int(keys)) }

// keyThat is a key that is in the store, or is not, if the model says so of one of a few draws.
func (s *stores) keyThat(live bool) string {
	key := s.key()
	for i := 0; i < 3 && !s.pool && s.live(key) != live; i++ {
		key = s.key()
	}
	return key
}

// noID is of no object: it is far from what a sequence comes to, and its bytes are no zeros, as
// those of memory that was never written.
const noID = 1<<30 + 0x10203

// handle is the handle that an operation returned, for a key.
func (s *stores) handle(h issued) map[string]any {
	out := map[string]any{
		"key": h.key, "address": fuzz.Ref{Op: h.op, Field: "address", Else: 0},
		"id": fuzz.Ref{Op: h.op, Field: "id", Else: noID},
	}
	if s.release.Signed {
		out["signature"] = fuzz.Ref{Op: h.op, Field: "signature"}
	}
	return out
}

// give notes that an operation returns a handle, which every reader will get. What the model
// refused is mostly left out.
func (s *stores) give(op int, key string) {
	if s.replies[op].Kind != "" && !s.Percent(3) {
		return
	}
	h := issued{op, key, s.ops[op-1].Args["request"]}
	s.issued = append(s.issued, h)
	for i := range s.pending {
		s.pending[i] = append(s.pending[i], h)
	}
}

func (s *stores) one(list []issued) (issued, bool) {
	if len(list) == 0 {
		return issued{}, false
	}
	if s.Percent(50) { // mostly recent ones
		return list[len(list)-1-s.Int(min(len(list), 4))], true
	}
	return list[s.Int(len(list))], true
}

// last returns how many operations finish will add, at most.
func (s *stores) last() int {
	n := 5 + s.readers + len(s.reserved) + len(s.open) + len(s.sent)
	if s.pool {
		n += keys
	}
	for _, p := range s.pending {
		n += 2 * len(p)
	}
	return n
}

// finish lets every reader get what it has to, and ends what is open: then nothing may stay.
func (s *stores) finish() {
	for i := range s.readers {
		s.drain(i)
	}
	if s.pool {
		for _, key := range s.reserved {
			s.onKey("store.discard", key)
		}
		for _, r := range s.open {
			s.request("store.rollback", r)
		}
		for _, r := range s.sent {
			s.request("store.finish", r)
		}
		for i := range keys {
			s.onKey("store.evict", "k"+strconv.Itoa(i))
		}
		s.add("store.fence", "w", nil)
	}
	if !s.pool && s.release.Counting == 2 {
		s.add("store.release_touches", "w", nil)
	}
	s.add("store.free_unused", "w", nil)
	s.add("store.state", "w", nil)
	for i := range s.readers {
		s.add("store.close", "r"+strconv.Itoa(i), nil)
	}
	s.add("store.close", "w", nil)
}

func (s *stores) request(name, id string) int {
	return s.add(name, "w", map[string]any{"request": id})
}
