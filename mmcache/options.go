package mmcache

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
)

// The values of Options.Mode, as vLLM calls them.
const (
	modeNone          = "none"
	modeProcessorOnly = "processor_only"
	modeLRU           = "lru"
	modeSHM           = "shm"
)

// Options are those of a cache. [Config.Options] returns the ones that match a vLLM
// server.
type Options struct {
	// Mode is the kind of the cache, for Open:
	//
	//	none            makes every item for every request; also ""
	//	processor_only  keeps items in the frontend and sends them each time
	//	lru             mirrors what the engine keeps and sends items once
	//	shm             keeps items in shared memory and sends handles
	Mode string
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

	// Shared is for mode shm.
	Shared SharedOptions

	// VerifyHits is for tests and debugging: it makes items also when they are cached,
	// and counts (Stats.Changed) and logs each whose tensors or prompt updates are
	// not what was made under its key before. Without it the first content of a key
	// silently wins. What is made to be compared is not bounded by InFlight.
	VerifyHits bool

	// Logger gets a line for each item that can't be cached. nil is silent.
	Logger *slog.Logger
}

// SharedOptions are those of mode shm. Most are options of the store, see
// objstore.Options.
type SharedOptions struct {
	// Readers is the number of processes that read every item: the engine's world
	// size.
	Readers int
	// MaxObject is the most bytes of one object. 0 is 128 MiB or Capacity, whichever
	// is less; more than Capacity counts as Capacity.
	MaxObject int
	// Name is that of the segment, Dir its folder: by default vLLM's name, and
	// /dev/shm.
	Name, Dir string
	// Adopt takes over the segment Name with its items if its writer is gone, and
	// makes a new one if there is none. It needs a Name.
	Adopt bool
	// Owner is a label of the segment for ringcache sweep.
	Owner string

	// FIFO frees items by vLLM's own rule (objstore.FIFO), which an aborted request can
	// block for ever. Without it the store is a pool.
	FIFO bool
	// Rereads and QuarantineTTL are about what aborted requests keep, in a Pool.
	Rereads       bool
	QuarantineTTL time.Duration
	// Quotas bound the bytes of each tenant (Want.Tenant), in a Pool; Quota those of
	// a tenant that is not in it. 0 is no bound.
	Quotas map[string]int64
	Quota  int64
}

const (
	defaultInFlight = 1 << 30
	defaultMaxItem  = 128 << 20
)

// withDefaults validates the options and fills in what is left out.
func (o Options) withDefaults() (Options, error) {
	switch o.Mode {
	case "":
		o.Mode = modeNone
	case modeNone, modeProcessorOnly, modeLRU, modeSHM:
	default:
		return o, fmt.Errorf("%w: mode %q: want none, processor_only, lru or shm", errInvalid, o.Mode)
	}
	if o.Mode != modeNone && (!(o.Capacity >= 0) || o.Capacity > math.MaxInt64/2) {
		return o, fmt.Errorf("%w: capacity of %v bytes", errInvalid, o.Capacity)
	}
	if o.InFlight < 0 || o.MaxItem < 0 {
		return o, fmt.Errorf("%w: InFlight %d, MaxItem %d", errInvalid, o.InFlight, o.MaxItem)
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
		return o, fmt.Errorf("%w: MaxItem %d is above InFlight %d, so no such item could ever be made",
			errInvalid, o.MaxItem, o.InFlight)
	}
	if o.Mode == modeSHM {
		if err := o.Shared.withDefaults(o.Capacity); err != nil {
			return o, err
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	o, err := o.withDefaults()
	if err == nil && o.Mode == modeSHM {
		return o.store().Validate()
	}
	return err
}

func (s *SharedOptions) withDefaults(capacity float64) error {
	if s.FIFO && (s.Quota != 0 || s.Quotas != nil) {
		return fmt.Errorf("%w: a FIFO has no quotas", errInvalid)
	}
	if s.Adopt && (s.Name == "" || s.FIFO) {
		return fmt.Errorf("%w: Adopt needs a Name, and a Pool", errInvalid)
	}
	if capacity <= shmring.HeaderSize {
		return fmt.Errorf("%w: Capacity is %v, and mode shm needs the bytes of the ring: the engine's mm_processor_cache_gb (pycompat.RingSize)", errInvalid, capacity)
	}
	if float64(s.MaxObject) > capacity {
		s.MaxObject = int(capacity)
	}
	return nil
}

// store returns the options of the store of mode shm.
func (o Options) store() objstore.Options {
	s := o.Shared
	return objstore.Options{
		Name: s.Name, Dir: s.Dir, RingSize: int(o.Capacity), MaxObjectSize: s.MaxObject,
		Readers: s.Readers, Generation: o.Generation,
		Rereads: s.Rereads, QuarantineTTL: s.QuarantineTTL,
		Quotas: s.Quotas, Quota: s.Quota, Owner: s.Owner,
	}
}
