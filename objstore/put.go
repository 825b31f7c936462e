package objstore

import (
	"errors"
	"fmt"

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
	r, err := w.Reserve(key, v)
	if err != nil {
		return Handle{}, err
	}
	defer r.Discard()
	if missing := r.Missing(); missing != "" {
		return Handle{}, fmt.Errorf("%w: tensor %s has no data; Reserve is for values that are filled in place", ErrInvalid, missing)
	}
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
// Use it as one uses a transaction:
//
//	r, err := w.Reserve(key, layout)
//	if err != nil { ... }
//	defer r.Discard() // does nothing after Commit
//	decodeInto(r.Tensor("pixel_values"))
//	h, err := r.Commit()
func (w *Writer) Reserve(key string, v serde.Value) (*Reservation, error) {
	if err := w.free(key); err != nil {
		return nil, err
	}
	plan, err := serde.NewPlan(v, w.sv.options)
	if err != nil {
		return nil, err
	}
	meta := plan.Metadata()
	size := countSize + len(meta) + plan.DataLen()
	if size > w.opt.MaxObjectSize {
		return nil, &TooLargeError{Size: size, Limit: w.opt.MaxObjectSize}
	}
	r, payload, err := w.reserve(key, size)
	if err != nil {
		return nil, err
	}
	r.plan, r.data = plan, payload[size-plan.DataLen():]
	err = w.sv.guard(Handle{Address: r.o.address, ID: r.o.id}, func() error {
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

// free says whether a key may be put. It looks before the value is encoded,
// which can take long.
func (w *Writer) free(key string) error {
	if err := w.lock(); err != nil {
		return err
	}
	defer w.mu.Unlock()
	return w.keyFree(key)
}

func (w *Writer) keyFree(key string) error {
	if _, ok := w.pending[key]; ok {
		return &KeyExistsError{Key: key, Reserved: true}
	}
	if o, ok := w.index[key]; ok && w.canIssue(o) {
		return &KeyExistsError{Key: key}
	}
	return nil
}

// reserve takes a chunk of size bytes for a key.
func (w *Writer) reserve(key string, size int) (*Reservation, []byte, error) {
	if err := w.lock(); err != nil {
		return nil, nil, err
	}
	defer w.mu.Unlock()
	if err := w.keyFree(key); err != nil {
		return nil, nil, err
	}
	address, id, payload, err := w.alloc(size)
	if err != nil {
		return nil, nil, err
	}
	o := &object{key: key, address: address, id: id}
	w.objects[id] = o
	w.pending[key] = o
	if err := w.sv.seg.Hold(); err != nil { // can't be: only Close closes it
		panic(err)
	}
	return &Reservation{w: w, o: o}, payload, nil
}

// alloc allocates, once more after freeing what it can.
func (w *Writer) alloc(size int) (address uint64, id uint32, payload []byte, err error) {
	try := func() error {
		return w.sv.guard(Handle{}, func() (err error) {
			address, id, payload, err = w.ring.Alloc(size)
			return err
		})
	}
	if err = try(); errors.Is(err, shmring.ErrFull) {
		if _, err = w.freeUnused(); err == nil {
			err = try()
		}
	}
	var full *shmring.FullError
	if errors.As(err, &full) {
		err = &FullError{Need: full.Need, Used: full.Used, Size: full.Size, Head: w.head()}
	}
	return address, id, payload, err
}

// head describes the oldest chunk of a ring that is not empty.
func (w *Writer) head() HeadState {
	for id, address := range w.ring.Live() {
		o := w.objects[id]
		_, protected := w.touched[id]
		h := HeadState{Key: o.key, ID: id, Reserved: o.state == reserved, Protected: protected, Uses: o.uses, Readers: w.opt.Readers}
		if c, err := w.ring.Access(address); err == nil && len(c.Payload) >= countSize {
			h.Reads = readCount(c.Payload)
		}
		return h
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

// Missing names the first tensor that Reserve got no data for, or is empty.
func (r *Reservation) Missing() string {
	for _, p := range r.plan.Tensors() {
		if p.Tensor.Data == nil && p.Len > 0 {
			return fmt.Sprintf("%q", p.Key)
		}
	}
	return ""
}

// Commit makes the object visible under its key and returns the handle of its
// first use. It fails when called after Commit or Discard, and with
// [CorruptError] if the segment was truncated.
func (r *Reservation) Commit() (Handle, error) {
	w := r.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.done {
		return Handle{}, fmt.Errorf("%w: the reservation of key %q ended already", ErrInvalid, r.o.key)
	}
	var sig []byte
	if w.gen.Signed {
		err := w.sv.guard(Handle{Address: r.o.address, ID: r.o.id}, func() error {
			sig = sign(w.sv.seg.Secret(), r.o.key, r.o.address, r.o.id)
			return nil
		})
		if err != nil {
			r.discard()
			return Handle{}, err
		}
	}
	mem.Fence() // everything written so far comes before the handle
	if old, ok := w.index[r.o.key]; ok {
		old.state = retired // its uses are used up, see keyFree
		delete(w.touched, old.id)
	}
	r.o.state = committed
	r.o.uses = 1
	r.o.sig = sig
	w.index[r.o.key] = r.o
	r.end()
	return w.handle(r.o), nil
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
