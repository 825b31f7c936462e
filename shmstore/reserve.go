package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/ringcache/ringcache/internal/failpoint"
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
func (w *Writer) Put(key string, v serde.Value) (Handle, error) { return w.put(key, v, PutOptions{}) }

func (w *Writer) put(key string, v serde.Value, o PutOptions) (Handle, error) {
	return w.putContext(noWait, key, v, o)
}

func (w *Writer) putContext(ctx context.Context, key string, v serde.Value, o PutOptions) (Handle, error) {
	plan, err := w.plan(key, v)
	if err != nil {
		return Handle{}, err
	}
	if !plan.Complete() {
		return Handle{}, fmt.Errorf("%w: a tensor has no data; Reserve is for values that are filled in place", ErrInvalid)
	}
	r, err := w.reserve(ctx, key, plan, o)
	if err != nil {
		return Handle{}, err
	}
	defer r.Discard()
	return r.Commit()
}

// PutOptions are what can be said of an object besides its value.
type PutOptions struct {
	// Request gets the handle that Commit returns, and a lease. nil: the handle
	// belongs to nobody, and with Pool the object stays until its counts are
	// complete or a fence passes; so it must be sent before the next fence is taken.
	Request *Request
	// Tenant is whose bytes they are, see Options.Quotas.
	Tenant string
	// Cost is the time that making the object again would take, by which Pool
	// chooses what to evict. 0 estimates it from the size.
	Cost time.Duration
	// Note is kept with the object, see Lease.Note. With Pool it is in the segment,
	// between what readers look at, and survives this process.
	Note []byte
}

// costOf is the cost of an object for which the caller gave none: 3 ms, and 8 ms
// for each MiB.
func costOf(o PutOptions, bytes int) float64 {
	if o.Cost > 0 {
		return float64(o.Cost)
	}
	return 3e6 + 8e6*float64(bytes)/(1<<20)
}

// Reservation is an object under construction: its chunk is taken, its key is
// not visible yet. Fill the tensors in any order, from any goroutine, then
// Commit; or Discard. A reservation blocks Close, Clear, and the freeing of the
// chunks behind its own.
type Reservation struct {
	w       *Writer
	o       *object
	payload []byte // of the chunk
	data    []byte // the data frames, its end
	plan    *serde.Plan
	request *Request // who gets the handle, or nil
	done    bool     // guarded by w.mu
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
	return w.ReserveWith(key, v, PutOptions{})
}

// ReserveWith is Reserve with options.
func (w *Writer) ReserveWith(key string, v serde.Value, o PutOptions) (*Reservation, error) {
	plan, err := w.plan(key, v)
	if err != nil {
		return nil, err
	}
	return w.reserve(noWait, key, plan, o)
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
func (w *Writer) reserve(ctx context.Context, key string, plan *serde.Plan, po PutOptions) (*Reservation, error) {
	meta := plan.Metadata()
	rest := countSize + len(meta)
	if plan.DataLen() > w.opt.MaxObjectSize-rest {
		return nil, &TooLargeError{Size: saturate(plan.DataLen(), rest), Limit: w.opt.MaxObjectSize}
	}
	o := &object{key: key, tenant: po.Tenant, cost: costOf(po, plan.DataLen()), note: bytes.Clone(po.Note), entry: -1}
	gap := 0
	if w.opt.Policy == Pool {
		o.noteOffset, o.noteLen = rest, o.noteSize()
		gap = o.noteLen + padding(rest+o.noteLen, plan)
		if gap > math.MaxInt-rest-plan.DataLen() {
			return nil, &TooLargeError{Size: math.MaxInt, Limit: w.opt.MaxObjectSize}
		}
	}
	payload, err := w.alloc(ctx, o, rest+gap+plan.DataLen(), po.Request)
	if err != nil {
		return nil, err
	}
	r := &Reservation{w: w, o: o, plan: plan, payload: payload, data: payload[len(payload)-plan.DataLen():], request: po.Request}
	failpoint.Hit("reserve.copy")
	err = w.sv.guard(r.handle(), func() error {
		mem.Store32(payload, 0)
		copy(payload[countSize:], meta)
		failpoint.Hit("reserve.copy.meta")
		if gap > 0 {
			n := len(appendNote(payload[rest:rest:rest+o.noteLen], o))
			clear(payload[rest+n : rest+gap]) // no bytes of older objects between
		}
		return plan.CopyTo(r.data)
	})
	failpoint.Hit("reserve.copied")
	if err != nil {
		r.Discard()
		return nil, err
	}
	return r, nil
}

func (r *Reservation) handle() Handle { return Handle{Address: r.o.address, ID: r.o.id} }

// padding returns how many bytes have to stand between what comes first in the
// payload and the data, so that the largest tensor, or else the data, begins at a
// multiple of 64 bytes: chunks of a pool do. The data must end the chunk, and its
// frames touch, so there is only one place for padding.
func padding(front int, plan *serde.Plan) int {
	largest := serde.Placement{}
	for _, p := range plan.Tensors() {
		if p.Len > largest.Len {
			largest = p
		}
	}
	at := shmring.HeaderSize + front + largest.Offset
	return (shmring.Granule - at%shmring.Granule) % shmring.Granule
}

func saturate(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// alloc allocates a chunk for an object, which becomes pending, and holds the
// segment. If ctx is not noWait it waits for room.
func (w *Writer) alloc(ctx context.Context, o *object, size int, r *Request) (payload []byte, err error) {
	if err := w.lock(); err != nil {
		return nil, err
	}
	defer w.mu.Unlock()
	check := func() error { return w.mayAlloc(o.key, r) }
	try := func(as turn) (err error) {
		payload, err = w.allocNow(o, size, as)
		return err
	}
	if err := check(); err != nil {
		return nil, err
	}
	if err = try(passing); ctx != noWait && errors.Is(err, ErrFull) {
		wt := &waiter{need: w.life.extent(size), tenant: o.tenant, key: o.key}
		err = w.await(ctx, wt, r, err, try, check)
	}
	return payload, err
}

// mayAlloc says what is in the way of an object under a key, besides room.
func (w *Writer) mayAlloc(key string, r *Request) error {
	switch {
	case w.closed:
		return w.closedError()
	case r == nil && w.stopping:
		return w.errStopping()
	case r != nil && r.w != w:
		return fmt.Errorf("%w: request %s belongs to another store", ErrInvalid, r.id)
	case r != nil && key == "":
		return errNoKey()
	case r != nil && r.state != requestOpen:
		return r.over()
	}
	return w.mayPut(key)
}

// errNoKey is for requests. A store without requests takes an empty key, as vLLM's
// does.
func errNoKey() error {
	return fmt.Errorf("%w: the key is empty; package mmhash makes keys", ErrInvalid)
}

func (w *Writer) allocNow(o *object, size int, as turn) ([]byte, error) {
	if err := w.sv.seg.Hold(); err != nil {
		return nil, err
	}
	var payload []byte
	var err error
	o.address, o.id, payload, err = w.life.alloc(size, o.tenant, as)
	if err != nil {
		w.sv.seg.Release()
		if never := (*shmring.TooLargeError)(nil); errors.As(err, &never) {
			limit := never.Limit - shmring.HeaderSize
			err = &TooLargeError{Size: size, Limit: limit, Ring: never.Limit < shmring.MaxChunk, Format: never.Limit == shmring.MaxChunk}
		}
		return nil, err
	}
	o.size = len(payload) + shmring.HeaderSize
	w.objects[o.id] = o
	w.pending[o.key] = o
	if p, ok := w.life.(*pool); ok {
		p.charge(o, 1)
	}
	return payload, nil
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

// SetCost replaces PutOptions.Cost, for what is known only once the object is
// made. It does nothing after Commit or Discard.
func (r *Reservation) SetCost(d time.Duration) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.done {
		return
	}
	r.o.cost = float64(max(d, 1))
	if r.o.noteLen > 0 {
		_ = r.w.sv.guard(Handle{}, func() error {
			putCost(r.payload[r.o.noteOffset:], r.o)
			return nil
		})
	}
}

// Commit makes the object visible under its key and returns the handle of its
// first use. It fails when called after Commit or Discard, and with
// [CorruptError] if the segment was truncated.
func (r *Reservation) Commit() (Handle, error) {
	sum := r.checksum()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.request != nil && !r.done && !r.w.closed && r.request.state != requestOpen {
		return Handle{}, fmt.Errorf("%w; discard the reservation", r.request.over())
	}
	if err := r.commit(sum); err != nil {
		return Handle{}, err
	}
	var h Handle
	var err error
	if r.request != nil {
		h, err = r.request.issue(r.o)
	} else {
		h, err = r.w.issueAnonymous(r.o)
	}
	if err != nil {
		r.w.retire(r.o) // nobody has a handle
	}
	return h, err
}

// checksum is taken without the lock: nobody writes to the payload any more.
func (r *Reservation) checksum() (sum uint32) {
	if r.w.opt.Policy == Pool && r.w.sv.seg.Control() != nil {
		_ = r.w.sv.guard(r.handle(), func() error {
			sum = shmring.PayloadSum(r.payload, r.o.noteOffset+r.o.noteLen, r.w.opt.FullSums)
			return nil
		})
	}
	return sum
}

// commit makes the object visible. The caller leases it at once, or puts it into
// quarantine: it must not be idle on the way.
func (r *Reservation) commit(sum uint32) error {
	w, o := r.w, r.o
	if r.done {
		return fmt.Errorf("%w: the reservation of key %q ended already", ErrInvalid, o.key)
	}
	if w.closed { // abandoned
		r.discard()
		return fmt.Errorf("%w: %s", ErrClosed, w.sv.seg.Name())
	}
	failpoint.Hit("commit")
	err := w.sv.guard(r.handle(), func() error {
		if w.gen.Signed {
			o.sig = sign(w.sv.seg.Secret(), o.key, o.address, o.id)
		}
		mem.Fence() // everything written so far comes before the handle
		o.sum = sum
		return w.life.publish(o)
	})
	if err != nil {
		r.discard()
		return err
	}
	o.state = committed
	if old, ok := w.index[o.key]; ok {
		w.retire(old) // its uses are used up, see mayPut
	}
	w.index[o.key] = o
	w.watch(o, true)
	r.end()
	w.wakeKey(o.key)
	failpoint.Hit("committed")
	return nil
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
	if !r.w.closed {
		r.w.life.discard(r.o)
	}
	r.end()
}

func (r *Reservation) end() {
	r.done = true
	delete(r.w.pending, r.o.key)
	r.w.sv.seg.Release()
	r.o.wakeObtain()
	r.w.wakeShutdown()
}
