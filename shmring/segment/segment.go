package shmring

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// SegmentOptions say what a segment is or is expected to be.
type SegmentOptions struct {
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
	// Control makes Create put a sidecar beside the segment, by which it can be
	// adopted or removed when its writer was killed. nil makes none.
	Control *ControlOptions
	// Dir is the directory of shared memory, /dev/shm if empty. It is for tests
	// and for systems that mount another one; vLLM knows only the default.
	Dir string
}

// Validate reports what is wrong with the options.
func (o SegmentOptions) Validate() error {
	switch {
	case o.RingSize <= HeaderSize:
		return fmt.Errorf("%w: a ring of %d bytes has no room for a chunk", ErrInvalid, o.RingSize)
	case o.DataOffset < 0 || o.RingSize > math.MaxInt-o.DataOffset:
		return fmt.Errorf("%w: data offset %d in front of a ring of %d bytes", ErrInvalid, o.DataOffset, o.RingSize)
	case o.Name != "":
		name := o.Name
		if o.Control != nil {
			name += ControlSuffix
		}
		if _, err := shmfile.Path(o.Dir, name); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

func (o SegmentOptions) bytes() int64 { return int64(o.RingSize) + int64(o.DataOffset) }

// Segment is a mapped shared memory object: DataOffset bytes, then the ring.
//
// It has no header and no magic number, since vLLM's layout has no room for
// one; the size is all that can be checked.
type Segment struct {
	opt  SegmentOptions
	path string
	file *os.File // kept to know whether the path is still this segment; nil if private
	mem  []byte
	ctl  *Control // of a writer's, nil if there is none

	mu      sync.Mutex
	holds   int
	idleNow chan struct{} // closed when holds is 0; nil if nobody waits for that
	closed  bool
}

// Create makes a new segment: mode 0600, exactly DataOffset + RingSize bytes,
// all of them allocated. It fails with [ErrExists], [ErrNoSpace] (never a SIGBUS
// later), [ErrInvalid], or the system's error, and then leaves nothing behind.
//
// The new segment outlives the process unless [Segment.Unlink] is called.
func Create(o SegmentOptions) (*Segment, error) {
	if o.Name == "" {
		o.Name = randomName()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, fmt.Errorf("%w: a new segment can't be read-only", ErrInvalid)
	}
	path, err := shmfile.Path(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	// Before anything is made; what else is wrong shows below.
	if err := shmfile.CheckSpace(path, o.bytes()); errors.As(err, new(*SpaceError)) {
		return nil, createError(o, err)
	}
	f, err := shmfile.CreateUnnamed(dirOf(o.Dir), o.bytes())
	if err != nil {
		return nil, createError(o, err)
	}
	s, err := newSegment(o, path, f)
	if err != nil {
		return nil, err
	}
	if o.DataOffset > 0 {
		_, _ = rand.Read(s.Secret()) // never fails
	}
	if err := s.link(); err != nil {
		return nil, errors.Join(createError(o, err), s.Close())
	}
	return s, nil
}

// link gives the segment its name, after the sidecar got its own: whoever is
// killed in between leaves a sidecar, which says that it is alone.
func (s *Segment) link() (err error) {
	if s.opt.Control != nil {
		if s.ctl, err = newControl(s); err != nil {
			return err
		}
	}
	failpoint.Hit("segment.link")
	if err = shmfile.Link(s.file, s.path); err != nil && s.ctl != nil {
		err = errors.Join(err, s.ctl.unlink())
	}
	failpoint.Hit("segment.linked")
	return err
}

// newControl makes the sidecar of a new segment, in the place of one that was
// left alone.
func newControl(s *Segment) (*Control, error) {
	path := s.path + ControlSuffix
	c, err := createControl(path, *s.opt.Control, s.opt, s.file)
	if !errors.Is(err, fs.ErrExist) {
		return c, err
	}
	old, err := openControl(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExists, err)
	}
	defer old.Close()
	if err := old.ownSoon(); err != nil {
		return nil, fmt.Errorf("%w: %w; choose another name", ErrExists, err)
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; its writer was killed: adopt it, or remove it with Sweep (%s)", ErrExists, s.opt.Name, sweepCommand(s.opt.Name))
	}
	if err := old.unlink(); err != nil {
		return nil, err
	}
	return createControl(path, *s.opt.Control, s.opt, s.file)
}

func createError(o SegmentOptions, err error) error {
	switch {
	case errors.Is(err, ErrExists):
		return err
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %s; another server uses the name, or one that was killed left it behind: choose another name or remove it", ErrExists, o.Name)
	case errors.As(err, new(*SpaceError)):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%w: %d bytes for %s: make the cache smaller or the mount larger (docker --shm-size): %w", ErrNoSpace, o.bytes(), o.Name, err)
	}
	return fmt.Errorf("shmring: creating segment %s: %w", o.Name, err)
}

// Attach maps an existing segment. It fails with
// [ErrNotExist], a [*SizeError], an error about an unsafe file (a link, another
// owner, writable by everyone), or the system's error.
//
// Nothing is registered anywhere: CPython's resource tracker would unlink the
// segment when the process that attached it exits.
func Attach(o SegmentOptions) (*Segment, error) {
	if o.Name == "" {
		return nil, fmt.Errorf("%w: a segment name is needed to attach", ErrInvalid)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	path, err := shmfile.Path(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	f, size, err := shmfile.Open(path, !o.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; the writer must create it before a reader starts", ErrNotExist, o.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("shmring: attaching segment %s: %w", o.Name, err)
	}
	if size != o.bytes() {
		return nil, errors.Join(&SizeError{Name: o.Name, Got: size, Ring: o.RingSize, DataOffset: o.DataOffset}, f.Close())
	}
	return newSegment(o, path, f)
}

// Adopt takes over a segment whose writer was killed, or closed it without
// removing it. o must say what the segment is; o.Control is ignored. It fails with
// [ErrNotExist]; [ErrForeign] if there is no sidecar; [ErrOwned] if the writer
// lives; [*SizeError]; and [*ControlError] if the sidecar can't be that of the
// segment. The texts say what a writer can do.
func Adopt(o SegmentOptions) (*Segment, error) {
	o.ReadOnly, o.Control = false, nil
	s, err := Attach(o)
	if err != nil {
		return nil, adoptError(o, err)
	}
	if s.ctl, err = OpenControl(o.Dir, o.Name); err == nil {
		err = s.ctl.ownSoon()
	}
	if err == nil && (!s.ctl.describes(s.file) || s.ctl.RingSize() != o.RingSize || s.ctl.DataOffset() != o.DataOffset) {
		err = &ControlError{Path: s.ctl.path, What: "it belongs to another segment than the one of its name"}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// adoptError puts an error of Attach into a writer's words.
func adoptError(o SegmentOptions, err error) error {
	var size *SizeError
	switch {
	case errors.Is(err, ErrNotExist):
		return fmt.Errorf("%w to adopt: %s; create it", ErrNotExist, o.Name)
	case errors.As(err, &size):
		size.Adopting = true
		if c, err := OpenControl(o.Dir, o.Name); err == nil {
			size.LeftRing, size.LeftGeneration = c.RingSize(), c.Options().Generation
			return errors.Join(size, c.Close())
		}
	}
	return err
}

// Explain makes an error about memory that is gone a [*FaultError], which names the
// file, if the fault was in the segment, in the sidecar that its writer has, or in
// those given. Other errors are returned as they are.
func (s *Segment) Explain(err error, sidecars ...*Control) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	e := &FaultError{Name: s.opt.Name, Err: err}
	if off, ok := mem.Offset(s.mem, f.Addr); ok {
		e.Path, e.Offset = s.path, int64(off)
	}
	for _, c := range append(sidecars, s.ctl) {
		if c == nil {
			continue
		}
		if off, ok := mem.Offset(c.mem, f.Addr); ok {
			e.Path, e.Offset = c.path, int64(off)
		}
	}
	if e.Path == "" {
		return err
	}
	return e
}

// Control returns the sidecar of a segment that this process created or adopted;
// nil if it has none.
func (s *Segment) Control() *Control { return s.ctl }

func newSegment(o SegmentOptions, path string, f *os.File) (*Segment, error) {
	m, err := shmfile.Map(f, o.bytes(), !o.ReadOnly)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Segment{opt: o, path: path, file: f, mem: m}, nil
}

// Private returns a segment over private memory, DataOffset + RingSize bytes,
// that no other process sees: for tests, for fuzzing, and for looking at a copy
// of a segment. Its name means nothing, and closing it only ends its use.
func Private(m []byte, o SegmentOptions) (*Segment, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if int64(len(m)) != o.bytes() {
		return nil, &SizeError{Name: o.Name, Got: int64(len(m)), Ring: o.RingSize, DataOffset: o.DataOffset}
	}
	s := &Segment{opt: o, mem: m}
	if o.Control != nil {
		var err error
		if s.ctl, err = privateControl(*o.Control, o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// randomName follows CPython's shared_memory module: psm_ and 8 hex digits.
func randomName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "psm_" + hex.EncodeToString(b[:])
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

// Hold keeps the mapping from being closed until Release. It fails with
// [ErrClosed].
func (s *Segment) Hold() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s", ErrClosed, s.opt.Name)
	}
	s.holds++
	return nil
}

// Release undoes one Hold.
func (s *Segment) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holds == 0 {
		panic("shmring: Release without Hold")
	}
	s.holds--
	s.signalIdle()
	if s.holds == 0 && s.closed { // it was abandoned meanwhile
		_ = s.unmap()
	}
}

func (s *Segment) idle() error {
	if s.holds > 0 {
		return fmt.Errorf("%w: %s: %d views or reservations are open; release them first", ErrBusy, s.opt.Name, s.holds)
	}
	return nil
}

// Close unmaps the segment and leaves the object itself alone. It fails with
// [ErrBusy], and does nothing, while it is held. Closing twice is fine.
func (s *Segment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.close()
}

// Detach is Close, and says in the sidecar that the writer ended by plan, so that
// the next one finds what it left.
func (s *Segment) Detach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if err := s.idle(); err != nil {
		return err
	}
	var err error
	if s.ctl != nil {
		err = s.ctl.guard(func() error {
			state := s.ctl.State()
			state.Clean = true
			s.ctl.SetState(state)
			return nil
		})
	}
	return errors.Join(err, s.close())
}

// Destroy is Unlink and Close in one step: while the segment is held it fails
// with [ErrBusy] and does neither.
func (s *Segment) Destroy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if err := s.idle(); err != nil {
		return err
	}
	return errors.Join(s.unlink(), s.close())
}

func (s *Segment) close() error {
	if s.closed {
		return nil
	}
	if err := s.idle(); err != nil {
		return err
	}
	s.closed = true
	return s.unmap()
}

// unmap ends the memory of a closed segment.
func (s *Segment) unmap() error {
	if s.file == nil {
		return nil
	}
	m := s.mem
	s.mem = nil
	err := errors.Join(shmfile.Unmap(m), s.file.Close())
	if s.ctl != nil {
		err = errors.Join(err, s.ctl.Close()) // last, since that ends the lock
	}
	return err
}

// Unlink removes the name, so that no one can attach any more; mappings live
// on. A name that is gone already, or that names another object by now, is left
// alone without an error. It must be called before Close.
func (s *Segment) Unlink() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%w: %s: unlink before closing", ErrClosed, s.opt.Name)
	}
	return s.unlink()
}

func (s *Segment) unlink() error {
	if s.file == nil {
		return nil
	}
	if shmfile.Same(s.file, s.path) {
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("shmring: unlinking segment %s: %w", s.opt.Name, err)
		}
	}
	failpoint.Hit("segment.unlinked")
	if s.ctl != nil {
		return s.ctl.unlink()
	}
	return nil
}
