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
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/sidecar"
)

// Options say what a segment is or is expected to be.
type Options struct {
	// Name of the shared memory object, without a directory; on Linux the file
	// /dev/shm/Name. Create makes one up if it is empty.
	Name string
	// RingSize is the bytes of the ring, vLLM's N.
	RingSize int
	// DataOffset is the bytes in front of the ring: pycompat.Generation says
	// how many. Create fills them with random bytes, the secret.
	DataOffset int
	// ReadOnly makes Attach map the segment so that writing to it is a fault.
	// Such a user can look, and not count.
	ReadOnly bool
	// Sidecar makes Create put a sidecar beside the segment, by which it can be
	// adopted or removed when its writer was killed. nil makes none.
	Sidecar *sidecar.Options
	// Dir is the directory of shared memory, /dev/shm if empty. It is for tests
	// and for systems that mount another one; vLLM knows only the default.
	Dir string
}

// Validate reports what is wrong with the options.
func (o Options) Validate() error {
	switch {
	case o.RingSize <= shmring.HeaderSize:
		return fmt.Errorf("%w: a ring of %d bytes has no room for a chunk", shmring.ErrInvalid, o.RingSize)
	case o.DataOffset < 0 || o.RingSize > math.MaxInt-o.DataOffset:
		return fmt.Errorf("%w: data offset %d in front of a ring of %d bytes", shmring.ErrInvalid, o.DataOffset, o.RingSize)
	case o.Name != "":
		name := o.Name
		if o.Sidecar != nil {
			name += sidecar.Suffix
		}
		if _, err := shmfile.Path(o.Dir, name); err != nil {
			return fmt.Errorf("%w: %w", shmring.ErrInvalid, err)
		}
	}
	return nil
}

func (o Options) bytes() int64 { return int64(o.RingSize) + int64(o.DataOffset) }

// Segment is a mapped shared memory object: DataOffset bytes, then the ring.
//
// It has no header and no magic number, since vLLM's layout has no room for
// one; the size is all that can be checked.
type Segment struct {
	opt     Options
	path    string
	file    *os.File // kept to know whether the path is still this segment; nil if private
	mem     []byte
	sidecar *sidecar.File // of a writer's, nil if there is none

	mu      sync.Mutex
	holds   int
	idleNow chan struct{} // closed when holds is 0; nil if nobody waits for that
	closed  bool
}

func newSegment(o Options, path string, f *os.File) (*Segment, error) {
	m, err := shmfile.Map(f, o.bytes(), !o.ReadOnly)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Segment{opt: o, path: path, file: f, mem: m}, nil
}

// Private returns a segment over private memory, DataOffset + RingSize bytes,
// that no other process sees: for tests, for fuzzing, and for looking at a copy
// of a segment. Its name means nothing, and closing it only ends its use.
func Private(m []byte, o Options) (*Segment, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if int64(len(m)) != o.bytes() {
		return nil, &SizeError{Name: o.Name, Got: int64(len(m)), Ring: o.RingSize, DataOffset: o.DataOffset}
	}
	s := &Segment{opt: o, mem: m}
	if o.Sidecar != nil {
		var err error
		side := *o.Sidecar
		side.RingSize, side.DataOffset = o.RingSize, o.DataOffset
		if s.sidecar, err = sidecar.Private(side); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Name returns the name of the shared memory object.
func (s *Segment) Name() string { return s.opt.Name }

// Size returns the bytes of the whole object.
func (s *Segment) Size() int { return int(s.opt.bytes()) }

// Bytes returns the whole mapping. Like the slices below it is valid until
// Close, and must not be touched later.
func (s *Segment) Bytes() []byte { return s.mem }

// Secret returns the bytes in front of the ring, empty in generations that
// have none.
func (s *Segment) Secret() []byte { return s.mem[:s.opt.DataOffset:s.opt.DataOffset] }

// Ring returns the bytes of the ring.
func (s *Segment) Ring() []byte { return s.mem[s.opt.DataOffset:] }

// Sidecar returns the sidecar of a segment that this process created or adopted;
// nil if it has none.
func (s *Segment) Sidecar() *sidecar.File { return s.sidecar }

// DescribedBy reports whether a sidecar is that of this segment.
func (s *Segment) DescribedBy(f *sidecar.File) bool { return s.file != nil && f.Describes(s.file) }

// Prepare gets the memory of the segment as the options have it and reports what it is
// really like, see [memory.Prepare]. It fails with [ErrClosed] too.
func (s *Segment) Prepare(ctx context.Context, o memory.Options) (memory.Report, error) {
	if err := o.Validate(); err != nil {
		return memory.Report{}, err
	}
	if s.path == "" {
		return memory.Report{}, fmt.Errorf("%w: the segment is private memory", shmring.ErrInvalid)
	}
	if err := s.Hold(); err != nil {
		return memory.Report{}, err
	}
	defer s.Release()
	return memory.Prepare(ctx, s.mem, s.path, o)
}

// Explain makes an error about memory that is gone a [*FaultError], which names the
// file, if the fault was in the segment, in the sidecar that its writer has, or in
// those given. Other errors are returned as they are.
func (s *Segment) Explain(err error, sidecars ...*sidecar.File) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	if off, ok := mem.Offset(s.mem, f.Addr); ok {
		return &FaultError{Name: s.opt.Name, Path: s.path, Offset: int64(off), Err: err}
	}
	for _, c := range append(sidecars, s.sidecar) {
		if c == nil {
			continue
		}
		if off, ok := c.Offset(f.Addr); ok {
			return &FaultError{Name: s.opt.Name, Path: c.Path(), Offset: int64(off), Err: err}
		}
	}
	return err
}
