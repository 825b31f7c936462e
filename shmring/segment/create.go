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
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/internal/sizes"
)

// Create makes a new segment: mode 0600, exactly DataOffset + RingSize bytes, all of them
// allocated, so that a lack of memory is an error here and not a SIGBUS later. Create fails
// with fs.ErrExist, [ErrNoSpace], fs.ErrInvalid, or an error of the system, and then
// leaves nothing behind.
//
// The new segment outlives the process unless [Segment.Unlink] or [Segment.Destroy] is
// called.
func Create(o Options) (*Segment, error) {
	if o.Name == "" {
		o.Name = randomName()
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, fmt.Errorf("%w: a new segment can't be read-only", errInvalid)
	}
	path, err := shmfile.Path(o.Dir, o.Name)
	if err != nil {
		return nil, err
	}
	// Before anything is made. Other errors of CheckSpace show below again.
	if err := shmfile.CheckSpace(path, o.bytes()); errors.As(err, new(*shmfile.SpaceError)) {
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

// link makes the sidecar and then gives the segment its name. A process that is killed in
// between leaves a sidecar without a segment, which the next Create replaces.
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

// newSidecar makes the sidecar of a new segment, if need be in place of one that was left
// without a segment.
func (s *Segment) newSidecar() (*sidecar.File, error) {
	o := s.opt.sidecar()
	f, err := sidecar.Create(s.opt.Dir, s.opt.Name, o, s.file)
	if !errors.Is(err, fs.ErrExist) {
		return f, err
	}
	old, err := sidecar.Open(s.opt.Dir, s.opt.Name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errExists, err)
	}
	defer old.Close()
	if err := own(old); err != nil {
		return nil, fmt.Errorf("%w: %w; choose another name", errExists, err)
	}
	if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s; its writer was killed: adopt it, or remove it with Sweep (%s)",
			errExists, s.opt.Name, shmfile.SweepCommand(s.opt.Name))
	}
	if err := old.Remove(); err != nil {
		return nil, err
	}
	return sidecar.Create(s.opt.Dir, s.opt.Name, o, s.file)
}

// own takes the writer's lock. It tries for a moment: Sweep takes the lock while it looks at
// a sidecar, and the lock of a process that was just killed may not be free yet.
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
	case errors.Is(err, errExists):
		return err
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %s; another server uses the name, or one that was killed left it behind: choose another name or remove it", errExists, o.Name)
	case errors.As(err, new(*shmfile.SpaceError)):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.ENOMEM):
		return fmt.Errorf("%w: %s for %s: make the cache smaller or the mount larger (docker --shm-size): %w",
			ErrNoSpace, sizes.Text(o.bytes()), o.Name, err)
	}
	return fmt.Errorf("segment: creating %s: %w", o.Name, err)
}

// randomName returns a name as CPython's shared_memory module chooses it: psm_ and 8 hex
// digits.
func randomName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "psm_" + hex.EncodeToString(b[:])
}
