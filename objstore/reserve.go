package objstore

import (
	"fmt"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
)

// Reservation is an object under construction: its chunk is taken, its key is
// not visible yet. Fill the tensors in any order, from any goroutine, then
// Commit; or Discard. A reservation blocks Close and Clear, and in a FIFO the freeing of
// the chunks behind its own.
//
// The caller must fill all of them: what is not filled still has the bytes of an
// older object, somebody else's image.
//
//	r, err := request.Reserve(key, layout, objstore.PutOptions{})
//	if err != nil { ... }
//	defer r.Discard() // does nothing after Commit
//	decodeInto(r.Tensor("pixel_values"))
//	h, err := r.Commit()
type Reservation struct {
	in      reservedChunk
	data    []byte // the data frames, the end of the chunk
	tensors []tensorPlace
	few     [3]tensorPlace // of which tensors is as long as they suffice
}

// tensorPlace is where a tensor is in the data, in bytes.
type tensorPlace struct {
	key         string // of its elem
	offset, len int
}

// reservedChunk is a chunk that was taken in a store.
type reservedChunk interface {
	// parts returns the front of the payload, and its last n bytes.
	parts(n int) (front, back []byte)
	place() (address uint64, id uint32)
	setCost(time.Duration)
	// commit makes the object visible, and counts n uses.
	commit(n int) (serde.Address, error)
	discard()
}

// putter is a request of either store. Its keys may be empty, as vLLM's are.
type putter interface {
	inChunks() *chunks
	// reserve takes the chunk for a value, if the key may be put, and writes what the value has.
	// It keeps nothing of the plan.
	reserve(key string, plan *serde.Plan, o PutOptions) (*Reservation, error)
	// put is reserve and commit, with n uses, of a plan that is complete.
	put(key string, plan *serde.Plan, o PutOptions, n int) (serde.Address, error)
}

// putNamed is Put of a request, and reserveNamed is Reserve.
func putNamed(r putter, key string, v serde.Value, o PutOptions) (serde.Address, error) {
	if key == "" {
		return serde.Address{}, errNoKey()
	}
	return put(r, key, v, o, 1)
}

func reserveNamed(r putter, key string, v serde.Value, o PutOptions) (*Reservation, error) {
	if key == "" {
		return nil, errNoKey()
	}
	return reserve(r, key, v, o)
}

// reserve reserves a value.
func reserve(r putter, key string, v serde.Value, o PutOptions) (*Reservation, error) {
	c := r.inChunks()
	plan := c.takePlan()
	defer c.returnPlan(plan)
	if err := plan.Reset(v, c.options); err != nil {
		return nil, err
	}
	return r.reserve(key, plan, o)
}

// put reserves and commits a value that is complete, with n uses.
func put(r putter, key string, v serde.Value, o PutOptions, n int) (serde.Address, error) {
	c := r.inChunks()
	plan := c.takePlan()
	defer c.returnPlan(plan)
	if err := plan.Reset(v, c.options); err != nil {
		return serde.Address{}, err
	}
	if !plan.Complete() {
		return serde.Address{}, fmt.Errorf("%w: a tensor has no data; Reserve is for values that are filled in place",
			errInvalid)
	}
	return r.put(key, plan, o, n)
}

// takePlan returns an empty plan, which returnPlan takes back.
func (c *chunks) takePlan() *serde.Plan {
	if plan, _ := c.plans.Get().(*serde.Plan); plan != nil {
		return plan
	}
	return new(serde.Plan)
}

func (c *chunks) returnPlan(plan *serde.Plan) {
	plan.Clear() // which keeps no value
	c.plans.Put(plan)
}

// errNoKey is for requests. vLLM's steps take an empty key.
func errNoKey() error {
	return fmt.Errorf("%w: the key is empty; package mmhash makes keys", errInvalid)
}

// frontSize is the bytes of a payload in front of its data, without padding.
func frontSize(plan *serde.Plan) int { return countSize + len(plan.Metadata) }

// fill writes everything that the plan has into a chunk that was taken for it, and signs
// its handle h. Nobody else knows the chunk yet, so fill needs no lock.
func (c *chunks) fill(h serde.Address, key string, front, back []byte,
	plan *serde.Plan) (sig serde.Signature, err error) {
	err = c.guard(&h, func() error {
		mem.Store32(front, 0)
		copy(front[countSize:], plan.Metadata)
		if err := plan.CopyTo(back); err != nil {
			return err
		}
		sig = c.sign(key, h.Address, h.ID)
		return nil
	})
	failpoint.Hit("reserve.copied")
	return sig, err
}

// begin makes r the reservation of a chunk that was filled by a plan.
func (r *Reservation) begin(in reservedChunk, plan *serde.Plan) *Reservation {
	r.in, r.tensors = in, r.few[:0]
	_, r.data = in.parts(plan.DataLen)
	for i := range plan.Tensors {
		p := &plan.Tensors[i]
		r.tensors = append(r.tensors, tensorPlace{p.Key, p.Offset, p.Len})
	}
	return r
}

func saturate(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// Place returns where the object will be: the address and the id of its handle.
func (r *Reservation) Place() (address uint64, id uint32) { return r.in.place() }

// Tensor returns the bytes of the item's field key, whose data must be one
// tensor, for filling; nil if there is none. They are row-major and
// little-endian, of the dtype and shape that were reserved, and must not be
// touched after Commit or Discard.
func (r *Reservation) Tensor(key string) []byte {
	for _, p := range r.tensors {
		if p.key == key {
			return r.bytes(p)
		}
	}
	return nil
}

// Tensors returns the bytes of every tensor in the order of encoding, for
// values with nested data.
func (r *Reservation) Tensors() [][]byte {
	out := make([][]byte, len(r.tensors))
	for i, p := range r.tensors {
		out[i] = r.bytes(p)
	}
	return out
}

func (r *Reservation) bytes(p tensorPlace) []byte {
	return r.data[p.offset : p.offset+p.len : p.offset+p.len]
}

// SetCost sets the time that making the object again would take, by which a pool chooses what to evict,
// see shmstore.PutOptions. Without it the pool estimates the time from the size. SetCost does nothing
// after Commit or Discard, and in a FIFO.
func (r *Reservation) SetCost(d time.Duration) { r.in.setCost(d) }

// Commit makes the object visible under its key and returns the handle of its first use.
// The object stays until the request ends. Commit fails when called after Commit or
// Discard; with [ErrEnded] if the request is not open, then discard the reservation; and
// with [shmstore.CorruptError] if the segment was truncated.
func (r *Reservation) Commit() (serde.Address, error) { return r.in.commit(1) }

// Discard gives the reservation up. It does nothing after Commit, or when
// called again.
func (r *Reservation) Discard() { r.in.discard() }
