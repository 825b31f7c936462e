package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
)

// SweepOptions choose the segments that Sweep looks at.
type SweepOptions struct {
	// Prefix is the beginning of the segments' names; it must not be empty.
	Prefix string
	// Owner is the label of the segments ([SidecarOptions].Owner). Empty means segments
	// without a label.
	Owner string
	// AnyOwner makes Sweep ignore the label, and look at damaged sidecars too. Segments of
	// other users are never touched.
	AnyOwner bool
	// Remove makes Sweep remove segments whose writer is dead. Otherwise it only lists.
	Remove bool
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
}

// Swept describes a segment that Sweep looked at.
type Swept struct {
	Name    string
	Owner   string
	PID     int   // of the last writer
	Bytes   int64 // of the segment, its sidecar, its leases, and what the daemon knows of engines
	Alive   bool  // the writer is alive
	Closed  bool  // the last writer was closed, not killed, and left the segment for the next one
	Removed bool
	// Damage is not nil if the sidecar is empty, cut short or damaged. Then Owner and PID
	// may be unknown.
	Damage error
	Err    error // why the segment was not removed, or can't be judged
}

// Sweep lists the segments that o chooses, and with o.Remove removes those whose writer is
// dead. Only the writer's lock decides whether a writer is alive: neither its pid nor the age
// of a file. Sweep skips segments without a sidecar, which this library did not make.
//
// The label of a sidecar that is empty, cut short or damaged ([Swept].Damage) can't be read,
// so Sweep looks at such a sidecar only with AnyOwner. If nobody has the lock of the sidecar,
// its writer is dead: a sidecar is complete and locked when it gets its name, so no process is
// about to fill it. The segment of the same name is removed with the sidecar only if the
// sidecar still contains the segment's inode; otherwise vLLM may have made the segment.
//
// A segment that another process adopts at the same moment is either adopted or removed.
func Sweep(o SweepOptions) ([]Swept, error) {
	if o.Prefix == "" || strings.Contains(o.Prefix, "/") {
		return nil, fmt.Errorf("%w: Prefix %q: want the beginning of the names to sweep", errInvalid, o.Prefix)
	}
	dir := cmp.Or(o.Dir, shmfile.DefaultDir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("segment: sweeping %s: %w", dir, err)
	}
	var all []Swept
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), sidecar.Suffix)
		if !ok || !strings.HasPrefix(name, o.Prefix) {
			continue
		}
		if s, ok := sweep(o, dir, name); ok {
			all = append(all, s)
		}
	}
	return all, nil
}

// sweep looks at one segment. ok is false if o does not choose it.
func sweep(o SweepOptions, dir, name string) (s Swept, ok bool) {
	s.Name = name
	path := filepath.Join(dir, name)
	f, err := sidecar.Open(dir, name)
	if errors.Is(err, sidecar.ErrForeign) || errors.Is(err, shmfile.ErrUnsafe) {
		return s, false // gone, or not this user's
	}
	if bad := (*sidecar.FormatError)(nil); errors.As(err, &bad) && !bad.Newer {
		if !o.AnyOwner {
			return s, false
		}
		return sweepDamaged(o, dir, name, bad)
	}
	if err != nil {
		s.Err = err
		return s, true
	}
	defer func() { s.Err = errors.Join(s.Err, f.Close()) }()
	s.Owner, s.PID, s.Bytes = f.Options().Owner, f.State().PID, f.Size()
	if !o.AnyOwner && s.Owner != o.Owner {
		return s, false
	}
	switch err := f.Own(); {
	case errors.Is(err, sidecar.ErrOwned):
		s.Alive = true
	case errors.Is(err, fs.ErrNotExist):
		return s, false
	case errors.As(err, new(*sidecar.FormatError)):
		s.Damage = err // of the state: the label is readable, and this process has the lock
	case err != nil:
		s.Err = err
		return s, true
	}
	s.Closed = !s.Alive && s.Damage == nil && f.State().Clean
	// Only now: while another process had the lock, the segment could still appear.
	seg, size, err := shmfile.Open(path, false)
	if err == nil {
		defer seg.Close()
		s.Bytes += size
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.Err = err
		return s, true
	}
	s.Bytes += shmfile.BesideSize(path)
	if s.Alive || !o.Remove {
		return s, true
	}
	// Something else made a segment that the sidecar does not describe.
	if seg != nil && f.Describes(seg) && shmfile.Same(seg, path) {
		if s.Err = os.Remove(path); s.Err != nil {
			return s, true
		}
	}
	s.Err = errors.Join(removeLeases(path, f), f.Remove())
	s.Removed = s.Err == nil
	return s, true
}

// sweepDamaged looks at a segment whose sidecar is damaged.
func sweepDamaged(o SweepOptions, dir, name string, damage error) (s Swept, ok bool) {
	s = Swept{Name: name, Damage: damage}
	path := filepath.Join(dir, name)
	f, size, err := shmfile.Open(path+sidecar.Suffix, true)
	if err != nil {
		return s, false // gone, or replaced
	}
	defer func() { s.Err = errors.Join(s.Err, f.Close()) }() // releases the lock
	s.Bytes = size
	free, err := shmfile.TryLock(f)
	switch {
	case err != nil:
		s.Err = err
		return s, true
	case !free:
		s.Alive = true
		return s, true
	case !shmfile.Same(f, path+sidecar.Suffix):
		return s, false
	}
	// Before this process took the lock, another could have replaced the damaged sidecar.
	if again, err := sidecar.Open(dir, name); err == nil {
		s.Err = again.Close()
		return s, false
	}
	seg, segSize, err := shmfile.Open(path, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		s.Err = err
		return s, true
	default:
		defer seg.Close()
		s.Bytes += segSize
	}
	s.Bytes += shmfile.BesideSize(path)
	if !o.Remove {
		return s, true
	}
	var kept error
	switch {
	case seg == nil:
	case !sidecar.Describes(f, seg) || !shmfile.Same(seg, path):
		kept = fmt.Errorf("its sidecar was removed, and the segment stays, since nothing shows that this library made it; if no process uses it, remove %s", path)
	default:
		if s.Err = os.Remove(path); s.Err != nil {
			return s, true
		}
	}
	kept = errors.Join(kept, leasetable.Remove(path), shmfile.RemoveEngines(path))
	err = os.Remove(path + sidecar.Suffix)
	s.Removed, s.Err = err == nil, errors.Join(kept, err)
	return s, true
}
