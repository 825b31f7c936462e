package segment

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/sidecar"
)

// Create makes a new segment: mode 0600, exactly DataOffset + RingSize bytes,
// all of them allocated. It fails with [ErrExists], [ErrNoSpace] (never a SIGBUS
// later), [shmring.ErrInvalid], or the system's error, and then leaves nothing behind.
//
// The new segment outlives the process unless [Segment.Unlink] or
// [Segment.Destroy] is called.
func Create(o Options) (*Segment, error) {
	if o.Name == "" {
		o.Name = randomName()
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, fmt.Errorf("%w: a new segment can't be read-only", shmring.ErrInvalid)
	}
	path, err := shmfile.Path(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	// Before anything is made; what else is wrong shows below.
	if err := shmfile.CheckSpace(path, o.bytes()); errors.As(err, new(*SpaceError)) {
		return nil, createError(o, err)
	}
	f, err := shmfile.CreateUnnamed(filepath.Dir(path), o.bytes())
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
	if s.opt.Sidecar != nil {
		if s.sidecar, err = s.newSidecar(); err != nil {
			return err
		}
	}
	failpoint.Hit("segment.link")
	if err = shmfile.Link(s.file, s.path); err != nil && s.sidecar != nil {
		err = errors.Join(err, s.sidecar.Remove())
	}
	failpoint.Hit("segment.linked")
	return err
}

// newSidecar makes the sidecar of a new segment, in the place of one that was left
// alone.
func (s *Segment) newSidecar() (*sidecar.File, error) {
	o := *s.opt.Sidecar
	o.RingSize, o.DataOffset = s.opt.RingSize, s.opt.DataOffset
	f, err := sidecar.Create(s.opt.Dir, s.opt.Name, o, s.file)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	old, err := sidecar.Open(s.opt.Dir, s.opt.Name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrExists, err)
	}
	defer old.Close()
	if err := own(old); err != nil {
		return nil, fmt.Errorf("%w: %w; choose another name", ErrExists, err)
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; its writer was killed: adopt it, or remove it with Sweep (%s)", ErrExists, s.opt.Name, shmfile.SweepCommand(s.opt.Name))
	}
	if err := old.Remove(); err != nil {
		return nil, err
	}
	return sidecar.Create(s.opt.Dir, s.opt.Name, o, s.file)
}

// own takes the writer's lock. It tries for a moment: Sweep holds the lock while it
// looks, and that of a process that was killed just now may not be free yet.
func own(f *sidecar.File) (err error) {
	for range 40 {
		if err = f.Own(); !errors.Is(err, sidecar.ErrOwned) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

func createError(o Options, err error) error {
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

// randomName follows CPython's shared_memory module: psm_ and 8 hex digits.
func randomName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "psm_" + hex.EncodeToString(b[:])
}
