package objstore

import (
	"fmt"
	"time"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Options describe the store to make. RingSize, MaxObjectSize and Readers must be
// those of the vLLM engine that reads.
type Options struct {
	// Name of the segment. If empty, the environment variable
	// VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME or vLLM's default, see
	// pycompat.Generation.SegmentName.
	Name string
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Segment, if not nil, is the segment to use, which the caller created, or made over
	// private memory: Name, Dir and Owner are not looked at then. The store forgets whatever
	// is in it. Where handles are signed a new secret makes the old ones invalid;
	// elsewhere see FirstID. The store owns the segment from then on and closes it, but
	// does not remove it.
	Segment *segment.Segment
	// Owner is a label: segment.Sweep removes only segments of the label that it is given.
	Owner string
	// RingSize is the bytes of the ring; pycompat.RingSize computes it from
	// mm_processor_cache_gb.
	RingSize int
	// MaxObjectSize is the most bytes of one object, with its counter and
	// metadata: vLLM's mm_shm_cache_max_object_size_mb times 2^20. 0 is vLLM's
	// default of 128 MiB, or RingSize if that is less. In a FIFO it may be above
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
	// FirstID is the id of the first object. A store in a Segment that was in use wants
	// one that no handle still has.
	FirstID uint32
	// Watch, if not nil, is called for every key that comes and goes. It is called
	// under the store's lock: it must be quick and must not call the store.
	Watch func(shmstore.Change)

	// Of a FIFO:

	// Align places chunks at multiples of so many bytes in the segment, see
	// shmring.RingOptions. 0 gives upstream's addresses. Those of a pool are at
	// multiples of 64 bytes.
	Align int
	// KeepIDs lets ids rise over Clear also in generations in which upstream
	// starts them again, which makes an old handle match a new chunk. Those of a pool
	// always rise.
	KeepIDs bool

	// Of a pool:

	// Rereads reports that the engine may read an address again after every reader
	// has read it, since its newer model runner resumes a preempted request as a new
	// one. Then complete counts don't end the quarantine of an aborted request, a
	// fence does. It is on by itself for generations that may do so
	// (pycompat.Generation.Rereads), unless TrustCounts reports that this engine does
	// not.
	Rereads, TrustCounts bool
	// QuarantineTTL is shmstore.Options.QuarantineTTL: 0 is ten minutes, less is never.
	// Nobody can be inside if the counts prove that nobody has read the object since it
	// was last idle, or that all reads are done.
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
	// objects up to 4 KiB, and samples of larger ones: a full sum takes longer than
	// writing the object.
	FullSums bool
}

// defaultMaxObjectSize is vLLM's default of mm_shm_cache_max_object_size_mb.
const defaultMaxObjectSize = 128 << 20

// maxReaders is far more than any engine has, and keeps products of counts
// small.
const maxReaders = 1 << 16

// Validate returns what is wrong with the options, of either store.
func (o Options) Validate() error {
	_, err := o.resolve()
	return err
}

// resolve returns the options with their defaults, if they are valid.
func (o Options) resolve() (Options, error) {
	var err error
	if o.Generation, err = pycompat.Resolve(o.Generation); err != nil {
		return o, err
	}
	if err := checkShape(o.RingSize, o.Readers); err != nil {
		return o, err
	}
	if o.Name == "" {
		o.Name = o.Generation.SegmentName()
	}
	if o.MaxObjectSize == 0 {
		o.MaxObjectSize = min(defaultMaxObjectSize, o.RingSize)
	}
	switch {
	case o.MaxObjectSize < 0:
		return o, fmt.Errorf("%w: MaxObjectSize %d is negative", errInvalid, o.MaxObjectSize)
	case o.Rereads && o.TrustCounts:
		return o, fmt.Errorf("%w: Rereads and TrustCounts contradict each other", errInvalid)
	case o.MaxObjects < 0 || o.ReaderSlots < 0:
		return o, fmt.Errorf("%w: MaxObjects %d, ReaderSlots %d", errInvalid, o.MaxObjects, o.ReaderSlots)
	}
	if err := o.ring().Validate(); err != nil {
		return o, err
	}
	if o.Segment != nil {
		err = matches(o.Segment, o.RingSize, o.Generation)
	}
	return o, err
}

// resolvePool is resolve for a pool.
func (o Options) resolvePool() (Options, error) {
	o, err := o.resolve()
	if err == nil && o.MaxObjectSize > o.RingSize {
		err = fmt.Errorf("%w: MaxObjectSize %d is above RingSize %d, so no such object could ever be put; lower it, or leave it at 0", errInvalid, o.MaxObjectSize, o.RingSize)
	}
	return o, err
}

// checkShape checks what a writer and its readers must agree on.
func checkShape(ringSize, readers int) error {
	if ringSize <= shmring.HeaderSize {
		return fmt.Errorf("%w: RingSize is %d, want the bytes of the ring: at least %d, and more than the largest object takes", errInvalid, ringSize, shmring.HeaderSize+1)
	}
	return checkReaders(readers)
}

func checkReaders(n int) error {
	if n < 1 || n > maxReaders {
		return fmt.Errorf("%w: Readers %d, want the world size of the engine, 1 to %d", errInvalid, n, maxReaders)
	}
	return nil
}

// matches checks a segment that a caller brings against its options.
func matches(seg *segment.Segment, ringSize int, g *pycompat.Generation) error {
	if off := g.DataOffset; len(seg.Ring()) != ringSize || len(seg.Secret()) != off {
		return fmt.Errorf("%w: %s has %d bytes, want %d (%d in front of a ring of %d); writer and reader must agree on the ring size and the vLLM generation",
			segment.ErrSize, seg.Name(), len(seg.Bytes()), off+ringSize, off, ringSize)
	}
	return nil
}

func (o Options) ring() shmring.RingOptions {
	g := o.Generation
	return shmring.RingOptions{
		Align: o.Align, DataOffset: g.DataOffset, IDsRestart: g.IDsRestart && !o.KeepIDs, FirstID: o.FirstID,
	}
}

// fifoSegment returns the options of the segment of a FIFO.
func (o Options) fifoSegment() segment.Options {
	g := o.Generation
	return segment.Options{Name: o.Name, RingSize: o.RingSize, DataOffset: g.DataOffset, Dir: o.Dir,
		Sidecar: &segment.SidecarOptions{
			Format: g.Version, Owner: o.Owner, Readers: o.Readers, Slots: o.ReaderSlots,
		}}
}

// bytes returns the options of the store under a pool.
func (o Options) bytes() shmstore.Options {
	g := o.Generation
	return shmstore.Options{
		Name: o.Name, Segment: o.Segment, Size: o.RingSize, DataOffset: g.DataOffset, MaxObjectSize: o.MaxObjectSize,
		MaxObjects: o.MaxObjects, ReaderSlots: o.ReaderSlots, Format: g.Version, Owner: o.Owner, Readers: o.Readers,
		FirstID: o.FirstID, FullSums: o.FullSums, QuarantineTTL: o.QuarantineTTL, Quotas: o.Quotas, Quota: o.Quota,
		Watch: o.Watch, Dir: o.Dir,
	}
}
