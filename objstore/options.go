package objstore

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Options say what store to make. RingSize, MaxObjectSize and Readers must be
// those of the vLLM engine that reads.
type Options struct {
	// Name of the segment. If empty, the environment variable
	// VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME or vLLM's default, see
	// pycompat.Generation.SegmentName.
	Name string
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Owner is a label: segment.Sweep removes only segments of the label that it is given.
	Owner string
	// RingSize is the bytes of the ring; pycompat.RingSize computes it from
	// mm_processor_cache_gb.
	RingSize int
	// MaxObjectSize is the most bytes of one object, with its counter and
	// metadata: vLLM's mm_shm_cache_max_object_size_mb times 2^20. 0 is
	// DefaultMaxObjectSize, or RingSize if that is less. In a FIFO it may be above
	// RingSize, as with vLLM.
	MaxObjectSize int
	// Readers is the number of processes that read every object: the engine's
	// world size.
	Readers int
	// Generation of the vLLM workers; nil is the newest known.
	Generation *pycompat.Generation
	// InlineThreshold in bytes: smaller tensors become part of the message
	// (VLLM_MSGPACK_ZERO_COPY_THRESHOLD). 0 is upstream's default of 256, less is
	// upstream's 0.
	InlineThreshold int
	// FirstID is the id of the first object. NewPool and NewFIFO over a segment that
	// was in use want one that no handle still has.
	FirstID uint32
	// Watch, if not nil, is called for every key that comes and goes. It is called
	// under the store's lock: it must be quick and must not call the store.
	Watch func(Change)
	// Lock makes the steps of package upstream count the reads of the writer like a
	// reader's, as a vLLM storage built with a lock does. Normally nil.
	Lock Locker
	// LockTimeout bounds every wait for Lock; 0 is 10 s.
	LockTimeout time.Duration

	// Of a FIFO:

	// Align places chunks at multiples of so many bytes in the segment, see
	// shmring.RingOptions. 0 gives upstream's addresses. Those of a Pool are at
	// multiples of 64 bytes.
	Align int
	// KeepIDs lets ids rise over Clear also in generations in which upstream
	// starts them again, which makes an old handle match a new chunk. Those of a Pool
	// always rise.
	KeepIDs bool

	// Of a Pool:

	// Rereads reports that the engine may read an address again after every reader
	// has read it, since its newer model runner resumes a preempted request as a new
	// one. Then complete counts don't end the quarantine of an aborted request, a
	// Fence does. It is on by itself for generations that may do so
	// (pycompat.Generation.Rereads), unless TrustCounts reports that this engine does
	// not.
	Rereads, TrustCounts bool
	// QuarantineTTL ends the quarantine of an aborted request for which no fence
	// passes, if the counts prove that nobody has read the object since it was last
	// idle, or that all reads are done. 0 is ten minutes, less
	// is never.
	QuarantineTTL time.Duration
	// Quotas bound the bytes of each tenant (PutOptions.Tenant); Quota those of a
	// tenant that is not in it. 0 is no bound. A FIFO refuses them.
	Quotas map[string]int64
	Quota  int64
	// MaxObjects is the most objects at a time: the sidecar has 64 bytes for each. 0 is
	// one for every 8 KiB of the ring, within 1024 and 2^20.
	MaxObjects int
	// ReaderSlots is the most readers of this library that look at objects in
	// place, 2 KiB each in the sidecar. 0 is 64.
	ReaderSlots int
	// FullSums makes the sidecar's checksums cover every byte of an object, so that
	// AdoptPool finds any change that something else made to it. Without, they cover
	// objects up to 64 KiB, and samples of larger ones (docs/format.md): a full
	// sum takes longer than writing the object.
	FullSums bool
}

// DefaultMaxObjectSize is vLLM's default of mm_shm_cache_max_object_size_mb.
const DefaultMaxObjectSize = 128 << 20

// maxReaders is far more than any engine has, and keeps products of counts
// small.
const maxReaders = 1 << 16

// resolve returns the options with the defaults of what every part of a store needs, if
// they are valid for either.
func (o Options) resolve() (Options, error) {
	var err error
	if o.Generation, err = pycompat.Resolve(o.Generation); err != nil {
		return o, err
	}
	if o.MaxObjectSize == 0 {
		o.MaxObjectSize = min(DefaultMaxObjectSize, o.RingSize)
	}
	switch {
	case o.RingSize <= shmring.HeaderSize:
		return o, fmt.Errorf("%w: RingSize %d has no room for an object", ErrInvalid, o.RingSize)
	case o.MaxObjectSize < 0:
		return o, fmt.Errorf("%w: MaxObjectSize %d is negative", ErrInvalid, o.MaxObjectSize)
	case o.Readers < 1 || o.Readers > maxReaders:
		return o, fmt.Errorf("%w: Readers %d, want the world size of the engine, 1 to %d", ErrInvalid, o.Readers, maxReaders)
	case o.LockTimeout < 0:
		return o, fmt.Errorf("%w: LockTimeout %v is negative", ErrInvalid, o.LockTimeout)
	}
	return o, o.ring().Validate()
}

// resolveFIFO is resolve for a [FIFO].
func (o Options) resolveFIFO() (Options, error) {
	if o.Quota != 0 || o.Quotas != nil {
		return o, fmt.Errorf("%w: quotas need a Pool", ErrInvalid)
	}
	return o.resolve()
}

// resolvePool is resolve for a [Pool].
func (o Options) resolvePool() (Options, error) {
	switch {
	case o.MaxObjectSize > o.RingSize:
		return o, fmt.Errorf("%w: MaxObjectSize %d is above RingSize %d, so no such object could ever be put; lower it, or leave it at 0", ErrInvalid, o.MaxObjectSize, o.RingSize)
	case o.Rereads && o.TrustCounts:
		return o, fmt.Errorf("%w: Rereads and TrustCounts contradict each other", ErrInvalid)
	case o.MaxObjects < 0 || o.ReaderSlots < 0:
		return o, fmt.Errorf("%w: MaxObjects %d, ReaderSlots %d", ErrInvalid, o.MaxObjects, o.ReaderSlots)
	}
	return o.resolve()
}

// ValidateFIFO returns what is wrong with the options of a [FIFO].
func (o Options) ValidateFIFO() error {
	_, err := o.resolveFIFO()
	return err
}

// ValidatePool returns what is wrong with the options of a [Pool].
func (o Options) ValidatePool() error {
	_, err := o.resolvePool()
	return err
}

// resetReaders checks a number of readers before it is used.
func resetReaders(o Options, reset func(int) error, readers int) error {
	if readers < 0 || readers > maxReaders {
		o.Readers = readers
		_, err := o.resolve()
		return err
	}
	return reset(readers)
}

func (o Options) ring() shmring.RingOptions {
	g := o.Generation
	return shmring.RingOptions{Align: o.Align, DataOffset: g.DataOffset, IDsRestart: g.IDsRestart && !o.KeepIDs, FirstID: o.FirstID}
}

func (o Options) fifoSegment() segment.Options {
	g := o.Generation
	return segment.Options{Name: o.Name, RingSize: o.RingSize, DataOffset: g.DataOffset, Dir: o.Dir, Sidecar: &segment.SidecarOptions{
		Format: g.Version, Owner: o.Owner, Readers: o.Readers, Slots: o.ReaderSlots,
	}}
}

// bytes returns the options of the store under a Pool.
func (o Options) bytes() shmstore.Options {
	g := o.Generation
	return shmstore.Options{
		Name: o.Name, Size: o.RingSize, DataOffset: g.DataOffset, MaxObjectSize: o.MaxObjectSize,
		MaxObjects: o.MaxObjects, ReaderSlots: o.ReaderSlots, Format: g.Version, Owner: o.Owner, Readers: o.Readers,
		FirstID: o.FirstID, FullSums: o.FullSums, QuarantineTTL: o.QuarantineTTL, Quotas: o.Quotas, Quota: o.Quota,
		Watch: o.Watch, Dir: o.Dir,
	}
}

// ReaderOptions say what store a reader expects. RingSize and Generation must
// be the writer's: the segment has no header to read them from.
type ReaderOptions struct {
	// RingSize is the bytes of the writer's ring.
	RingSize int
	// Readers is the number of processes that read every object. It is used by
	// Touch in generations that count touches, and not otherwise.
	Readers int
	// Generation of the writer; nil is the newest known.
	Generation *pycompat.Generation
	// Lock is the lock of the other readers, usually a *pycompat.Semaphore;
	// reads are counted under it. nil observes without counting: the segment is
	// mapped read-only, and the writer does not know of this reader.
	Lock Locker
	// SidecarLock counts reads under a lock in the sidecar instead of Lock, for
	// segments whose readers are all of this library: it is free again when its
	// holder dies, as a Python lock is not.
	SidecarLock bool
	// LockTimeout bounds every wait for Lock, whose holder may have died; 0 is
	// 10 s.
	LockTimeout time.Duration
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Logger gets a line for each view that was dropped without Release, with the place
	// where it was got. nil is silent.
	Logger *slog.Logger
}

// Validate returns what is wrong with the options.
func (o ReaderOptions) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns the options with the generation, if they are valid.
func (o ReaderOptions) resolve() (ReaderOptions, error) {
	if o.SidecarLock && o.Lock != nil {
		return o, fmt.Errorf("%w: Lock and SidecarLock are both set", ErrInvalid)
	}
	w, err := Options{RingSize: o.RingSize, Readers: o.Readers, LockTimeout: o.LockTimeout, Generation: o.Generation}.resolve()
	o.Generation = w.Generation
	return o, err
}

// Locker is a lock between processes. *pycompat.Semaphore is one.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock() error
}
