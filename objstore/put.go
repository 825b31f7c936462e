package objstore

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// Put stores a value under a key and issues its first use. No error leaves
// anything behind:
//   - [KeyExistsError]: use Lookup;
//   - [TooLargeError], or [FullError] after unused chunks were freed: send the
//     value inline;
//   - serde's errors, if the value can't be encoded, and [ErrClosed].
func (w *Writer) Put(key string, v serde.Value) (Handle, error) {
	plan, err := w.plan(key, v)
	if err != nil {
		return Handle{}, err
	}
	if !plan.Complete() {
		return Handle{}, fmt.Errorf("%w: a tensor has no data; Reserve is for values that are filled in place", ErrInvalid)
	}
	r, err := w.reserve(key, plan)
	if err != nil {
		return Handle{}, err
	}
	defer r.Discard()
	return r.Commit()
}

// Reservation is an object under construction: its chunk is taken, its key is
// not visible yet. Fill the tensors in any order, from any goroutine, then
// Commit; or Discard. A reservation blocks Close, Clear, and the freeing of the
// chunks behind its own.
type Reservation struct {
	w    *Writer
	o    *object
	data []byte // the data frames
	plan *serde.Plan
	done bool // guarded by w.mu
}

// Reserve takes the chunk for a value whose tensors need not have data yet:
// only their dtype and shape. Everything else of the value, and the data of
// those that have it, is written at once. The errors are those of Put.
//
// The caller must fill all of them: what is not filled still has the bytes of an
// older object, somebody else's image.
//
// Use it as one uses a transaction:
//
//	r, err := w.Reserve(key, layout)
//	if err != nil { ... }
//	defer r.Discard() // does nothing after Commit
//	decodeInto(r.Tensor("pixel_values"))
//	h, err := r.Commit()
func (w *Writer) Reserve(key string, v serde.Value) (*Reservation, error) {
	plan, err := w.plan(key, v)
	if err != nil {
		return nil, err
	}
	return w.reserve(key, plan)
}

// plan lays the value out. It looks first whether the key may be put, since
// that can take long.
func (w *Writer) plan(key string, v serde.Value) (*serde.Plan, error) {
	if !utf8.ValidString(key) {
		return nil, fmt.Errorf("%w: key %q is not UTF-8, so no Python reader can name it", ErrInvalid, key)
	}
	if err := w.lock(); err != nil {
		return nil, err
	}
	err := w.mayPut(key)
	w.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return serde.NewPlan(v, w.sv.options)
}

// mayPut returns a KeyExistsError for a key that is taken.
func (w *Writer) mayPut(key string) error {
	if _, ok := w.pending[key]; ok {
		return &KeyExistsError{Key: key, Reserved: true}
	}
	if o, ok := w.index[key]; ok && w.canIssue(o) {
		return &KeyExistsError{Key: key}
	}
	return nil
}

// reserve takes a chunk and writes everything that the plan has.
func (w *Writer) reserve(key string, plan *serde.Plan) (*Reservation, error) {
	meta := plan.Metadata()
	rest := countSize + len(meta)
	if plan.DataLen() > w.opt.MaxObjectSize-rest {
		return nil, &TooLargeError{Size: saturate(plan.DataLen(), rest), Limit: w.opt.MaxObjectSize}
	}
	o, payload, err := w.take(key, rest+plan.DataLen())
	if err != nil {
		return nil, err
	}
	r := &Reservation{w: w, o: o, plan: plan, data: payload[len(payload)-plan.DataLen():]}
	err = w.sv.guard(Handle{Address: o.address, ID: o.id}, func() error {
		mem.Store32(payload, 0)
		copy(payload[countSize:], meta)
		return plan.CopyTo(r.data)
	})
	if err != nil {
		r.Discard()
		return nil, err
	}
	return r, nil
}

func saturate(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// take allocates a chunk for a key and holds the segment.
func (w *Writer) take(key string, size int) (*object, []byte, error) {
	if err := w.lock(); err != nil {
		return nil, nil, err
	}
	defer w.mu.Unlock()
	if err := w.mayPut(key); err != nil {
		return nil, nil, err
	}
	if err := w.sv.seg.Hold(); err != nil {
		return nil, nil, err
	}
	address, id, payload, err := w.alloc(size)
	if err != nil {
		w.sv.seg.Release()
		return nil, nil, err
	}
	o := &object{key: key, address: address, id: id, size: len(payload) + shmring.HeaderSize}
	w.objects[id] = o
	w.pending[key] = o
	return o, payload, nil
}

// alloc allocates, once more after freeing what it can.
func (w *Writer) alloc(size int) (address uint64, id uint32, payload []byte, err error) {
	try := func() error {
		return w.sv.guard(Handle{}, func() (err error) {
			address, id, payload, err = w.ring.Alloc(size)
			return err
		})
	}
	// Also when it can never fit: upstream makes no difference, and frees.
	if err = try(); errors.Is(err, ErrFull) || errors.Is(err, ErrTooLarge) {
		if _, err = w.freeUnused(); err == nil {
			err = try()
		}
	}
	var full *shmring.FullError
	var never *shmring.TooLargeError
	switch {
	case errors.As(err, &full):
		err = &FullError{Need: full.Need, Used: full.Used, Size: full.Size, Head: w.head()}
	case errors.As(err, &never):
		err = &TooLargeError{Size: size, Limit: never.Limit - shmring.HeaderSize, Ring: true}
	}
	return address, id, payload, err
}

// head describes the oldest chunk of a ring that is not empty.
func (w *Writer) head() HeadState {
	for id, address := range w.ring.Live() {
		o := w.objects[id]
		_, protected := w.touched[id]
		return HeadState{
			Key: o.key, ID: id, Reserved: o.state == reserved, Protected: protected, Leases: o.leases,
			Uses: o.uses, Reads: w.reads(address), Readers: w.opt.Readers,
		}
	}
	return HeadState{}
}

// Place returns where the object will be: what its handle will say.
func (r *Reservation) Place() (address uint64, id uint32) { return r.o.address, r.o.id }

// Tensor returns the bytes of the item's field key, whose data must be one
// tensor, for filling; nil if there is none. They are row-major and
// little-endian, of the dtype and shape that were reserved, and must not be
// touched after Commit or Discard.
func (r *Reservation) Tensor(key string) []byte {
	for _, p := range r.plan.Tensors() {
		if p.Key == key {
			return r.bytes(p)
		}
	}
	return nil
}

// Tensors returns the bytes of every tensor in the order of encoding, for
// values with nested data.
func (r *Reservation) Tensors() [][]byte {
	ts := r.plan.Tensors()
	out := make([][]byte, len(ts))
	for i, p := range ts {
		out[i] = r.bytes(p)
	}
	return out
}

func (r *Reservation) bytes(p serde.Placement) []byte {
	return r.data[p.Offset : p.Offset+p.Len : p.Offset+p.Len]
}

// Commit makes the object visible under its key and returns the handle of its
// first use. It fails when called after Commit or Discard, and with
// [CorruptError] if the segment was truncated.
func (r *Reservation) Commit() (Handle, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if err := r.commit(); err != nil {
		return Handle{}, err
	}
	r.o.uses = 1
	return r.w.handle(r.o), nil
}

func (r *Reservation) commit() error {
	w := r.w
	if r.done {
		return fmt.Errorf("%w: the reservation of key %q ended already", ErrInvalid, r.o.key)
	}
	var sig []byte
	if w.gen.Signed {
		err := w.sv.guard(Handle{Address: r.o.address, ID: r.o.id}, func() error {
			sig = sign(w.sv.seg.Secret(), r.o.key, r.o.address, r.o.id)
			return nil
		})
		if err != nil {
			r.discard()
			return err
		}
	}
	mem.Fence() // everything written so far comes before the handle
	if old, ok := w.index[r.o.key]; ok {
		w.retire(old) // its uses are used up, see mayPut
	}
	r.o.state = committed
	r.o.sig = sig
	w.index[r.o.key] = r.o
	w.watch(r.o, true)
	r.end()
	return nil
}

// Attach keeps something of the caller's with the object, for [Lease.Attached],
// until the object goes. It must be called before Commit.
func (r *Reservation) Attach(note any) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.o.note = note
}

// Discard gives the reservation up. It does nothing after Commit, or when
// called again.
func (r *Reservation) Discard() {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if !r.done {
		r.discard()
	}
}

func (r *Reservation) discard() {
	r.o.state = discarded
	r.end()
}

func (r *Reservation) end() {
	r.done = true
	delete(r.w.pending, r.o.key)
	r.w.sv.seg.Release()
}
