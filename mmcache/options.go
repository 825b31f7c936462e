package mmcache

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
)

// Options say what cache to open. [Config.Options] makes those of a vLLM server.
type Options struct {
	Mode Mode
	// Generation of the vLLM engine; nil is the newest known.
	Generation *pycompat.Generation
	// Capacity is the bytes that the cache holds: of items here
	// (processor_only), at the engine (lru), or of the ring (shm). It must be the
	// engine's in the last two.
	Capacity float64
	// InFlight bounds the bytes that requests hold outside of the cache, see the
	// package comment. 0 is 1 GiB.
	InFlight int64
	// MaxItem is the bound of an item whose Want gives none. 0 is 128 MiB or
	// InFlight, whichever is less.
	MaxItem int64
	// Python is the engine's interpreter, whose sizes of numbers count in mode
	// lru. The zero value is a current CPython.
	Python lrusync.Python

	// Readers, MaxObject, Name and Dir are for mode shm, see objstore.Options:
	// the engine's world size, the bytes of the largest object, the name of the
	// segment and its folder. 0 for MaxObject is 128 MiB or Capacity, whichever is
	// less; more than Capacity counts as Capacity.
	Readers   int
	MaxObject int
	Name, Dir string

	// Policy of mode shm. The zero value is objstore.Pool; FIFO is vLLM's own, which
	// an aborted request can block for ever.
	Policy objstore.Policy
	// Adopt takes over the segment Name with its items if its writer is gone, and
	// makes a new one if there is none. It needs a Name.
	Adopt bool
	// Rereads and QuarantineTTL are for Pool, see objstore.Options.
	Rereads       bool
	QuarantineTTL time.Duration
	// Quotas and Quota bound the bytes of tenants in Pool, Owner labels the
	// segment; see objstore.Options.
	Quotas map[string]int64
	Quota  int64
	Owner  string

	// VerifyHits is for tests and debugging: it makes items also when they are cached,
	// and counts (Stats.Changed) and logs each whose tensors or prompt updates are
	// not what was made under its key before. Without it the first content of a key
	// silently wins. What is made to be compared is not bounded by InFlight.
	VerifyHits bool

	// Logger is told of items that can't be cached. nil is silent.
	Logger *slog.Logger
}

const (
	defaultInFlight = 1 << 30
	defaultMaxItem  = 128 << 20
)

// withDefaults validates the options and fills in what is left out.
func (o Options) withDefaults() (Options, error) {
	if o.Mode > SHM {
		return o, fmt.Errorf("%w: mode %d", ErrInvalid, o.Mode)
	}
	if o.Mode != None && (!(o.Capacity >= 0) || o.Capacity > math.MaxInt64/2) {
		return o, fmt.Errorf("%w: capacity of %v bytes", ErrInvalid, o.Capacity)
	}
	if o.InFlight < 0 || o.MaxItem < 0 {
		return o, fmt.Errorf("%w: InFlight %d, MaxItem %d", ErrInvalid, o.InFlight, o.MaxItem)
	}
	var err error
	if o.Generation, err = pycompat.Resolve(o.Generation); err != nil {
		return o, err
	}
	if o.InFlight == 0 {
		o.InFlight = defaultInFlight
	}
	if o.MaxItem == 0 {
		o.MaxItem = min(o.InFlight, defaultMaxItem)
	}
	if o.MaxItem > o.InFlight {
		return o, fmt.Errorf("%w: MaxItem %d is above InFlight %d, so no such item could ever be made", ErrInvalid, o.MaxItem, o.InFlight)
	}
	if o.Policy == 0 {
		o.Policy = objstore.Pool
	}
	if o.Adopt && (o.Mode != SHM || o.Name == "" || o.Policy != objstore.Pool) {
		return o, fmt.Errorf("%w: Adopt needs mode shm, the policy Pool and a Name", ErrInvalid)
	}
	if float64(o.MaxObject) > o.Capacity {
		o.MaxObject = int(o.Capacity)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	o, err := o.withDefaults()
	if err == nil && o.Mode == SHM {
		err = o.store().Validate()
	}
	return err
}

func (o Options) store() objstore.Options {
	return objstore.Options{
		Name: o.Name, Dir: o.Dir, RingSize: int(o.Capacity), MaxObjectSize: o.MaxObject,
		Readers: o.Readers, Generation: o.Generation, Policy: o.Policy,
		Rereads: o.Rereads, QuarantineTTL: o.QuarantineTTL,
		Quotas: o.Quotas, Quota: o.Quota, Owner: o.Owner,
	}
}
