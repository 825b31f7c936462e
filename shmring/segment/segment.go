package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
)

// Options describe the segment that Create makes, or that Attach and Adopt expect.
type Options struct {
	// Name is the name of the shared memory object, without a directory; on Linux the
	// object is the file /dev/shm/Name. If Name is empty, Create chooses one.
	Name string
	// RingSize is the size of the ring in bytes, vLLM's N.
	RingSize int
	// DataOffset is the number of bytes in front of the ring, the DataOffset of a
	// pycompat.Generation. Create fills them with random bytes, the secret.
	DataOffset int
	// ReadOnly makes Attach map the segment so that writing to it is a fault. Such a
	// reader can't count its reads.
	ReadOnly bool
	// Sidecar, if not nil, makes Create and Private add a sidecar, so that the segment can
	// be adopted or swept after its writer was killed. Adopt and Attach ignore it.
	Sidecar *SidecarOptions
	// Dir is the directory of shared memory, /dev/shm if empty. It is for tests and for
	// systems with another mount; vLLM always uses /dev/shm.
	Dir string
}

// SidecarOptions describe a segment to the next writer, to its readers, and to Sweep. The stores
// set them.
type SidecarOptions struct {
	// Pool reports that the chunks are those of a shmring.Pool, and in the table; otherwise
	// they are those of a shmring.Ring.
	Pool bool
	// Format names what the segment contains, in at most 24 bytes. That of a store of package
	// objstore is the vLLM version whose wire format it has.
	Format string
	// Owner is a label, at most 64 bytes, by which Sweep chooses. It names a service, not a
	// process.
	Owner string
	// Readers is the number of processes that read every object.
	Readers int
	// Objects is the largest number of objects in the table; each takes 64 bytes.
	Objects int
	// Slots is the largest number of readers with a slot; each takes 2 KiB. 0 is 64.
	Slots int
}

// validate returns what is wrong with the options.
func (o Options) validate() error {
	switch {
	case o.RingSize <= shmring.HeaderSize:
		return fmt.Errorf("%w: a ring of %d bytes has no room for a chunk", errInvalid, o.RingSize)
	case o.DataOffset < 0 || o.RingSize > math.MaxInt-o.DataOffset:
		return fmt.Errorf("%w: data offset %d in front of a ring of %d bytes", errInvalid, o.DataOffset, o.RingSize)
	case o.Name != "":
		name := o.Name
		if o.Sidecar != nil {
			name += sidecar.Suffix
		}
		if _, err := shmfile.Path(o.Dir, name); err != nil {
			return fmt.Errorf("%w: %w", errInvalid, err)
		}
	}
	return nil
}

func (o Options) bytes() int64 { return int64(o.RingSize) + int64(o.DataOffset) }

// sidecar returns the options of the sidecar, with the sizes of the segment.
func (o Options) sidecar() sidecar.Options {
	s := *o.Sidecar
	policy := sidecar.FIFO
	if s.Pool {
		policy = sidecar.Pool
	}
	return sidecar.Options{
		Policy: policy, Generation: s.Format, Owner: s.Owner, Readers: s.Readers, Objects: s.Objects, Slots: s.Slots,
		RingSize: o.RingSize, DataOffset: o.DataOffset,
	}
}

// Segment is a mapped shared memory object: DataOffset bytes, then the ring.
//
// vLLM's layout has no room for a header or a magic number, so only the size of an object
// shows whether it can be the expected one.
type Segment struct {
	opt     Options
	path    string
	file    *os.File // shows whether path still names this segment; nil if private
	mem     []byte
	sidecar *sidecar.File // only of a writer; nil if there is none

	holders holders // closed once the mapping ends

	mu      sync.Mutex    // of what follows, and of unmapping
	idleNow chan struct{} // closed when there are no holds; nil if nobody waits
	pinning bool          // by a call of Pin that has not returned
	pin     *Pin          // with registrations; nil if there are none
}

func newSegment(o Options, path string, f *os.File) (*Segment, error) {
	m, err := shmfile.Map(f, o.bytes(), !o.ReadOnly)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Segment{opt: o, path: path, file: f, mem: m}, nil
}

// Private returns a segment over m, memory of this process with DataOffset + RingSize bytes, or
// over new memory if m is nil: for tests, for fuzzing, and for a copy of a segment. Its name has
// no meaning, and Close does not free the memory.
func Private(m []byte, o Options) (*Segment, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if m == nil {
		m = make([]byte, o.bytes())
	}
	if int64(len(m)) != o.bytes() {
		return nil, &sizeError{Name: o.Name, Got: int64(len(m)), Ring: o.RingSize, DataOffset: o.DataOffset}
	}
	s := &Segment{opt: o, mem: m}
	if o.Sidecar != nil {
		var err error
		if s.sidecar, err = sidecar.Private(o.sidecar()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Name returns the name of the shared memory object.
func (s *Segment) Name() string { return s.opt.Name }

// Bytes returns the whole mapping. The slices that Bytes, Secret and Ring return are valid
// until the mapping ends and must not be touched afterwards.
func (s *Segment) Bytes() []byte { return s.mem }

// Secret returns the bytes in front of the ring, none in generations without a secret.
func (s *Segment) Secret() []byte { return s.mem[:s.opt.DataOffset:s.opt.DataOffset] }

// Ring returns the bytes of the ring.
func (s *Segment) Ring() []byte { return s.mem[s.opt.DataOffset:] }

// Prepare applies options to the memory of the segment and reports what was obtained, see
// [memory.Prepare]. It also fails with fs.ErrClosed.
func (s *Segment) Prepare(ctx context.Context, o memory.Options) (memory.Report, error) {
	if err := o.Validate(); err != nil {
		return memory.Report{}, err
	}
	if s.path == "" {
		return memory.Report{}, fmt.Errorf("%w: the segment is private memory", errInvalid)
	}
	if err := s.Hold(); err != nil {
		return memory.Report{}, err
	}
	defer s.Release()
	return memory.Prepare(ctx, s.mem, s.path, o)
}

// Explain returns an error that names the file and wraps err, if err is about a fault in the
// segment or in its sidecar: then something cut the file short. It returns every other error unchanged.
func (s *Segment) Explain(err error) error { return s.explain(err, nil) }

// explain is Explain for faults in other sidecars, too.
func (s *Segment) explain(err error, others []*sidecar.File) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	if off, ok := mem.Offset(s.mem, f.Addr); ok {
		return &faultError{Name: s.opt.Name, Path: s.path, Offset: int64(off), Err: err}
	}
	for _, file := range append(others, s.sidecar) {
		if file == nil {
			continue
		}
		if off, ok := file.Offset(f.Addr); ok {
			return &faultError{Name: s.opt.Name, Path: file.Path(), Offset: int64(off), Err: err}
		}
	}
	return err
}
