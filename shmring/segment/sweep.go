package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/sidecar"
)

// SweepOptions say which segments Sweep looks at.
type SweepOptions struct {
	// Prefix of the segments' names; it must not be empty.
	Prefix string
	// Owner restricts it to segments with this label ([sidecar.Options].Owner).
	// Empty means those without one.
	Owner string
	// AnyOwner ignores the label, and looks at damaged sidecars too. Segments of other
	// users are never touched.
	AnyOwner bool
	// Remove removes what has no living writer. The default is to tell.
	Remove bool
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
}

// Swept is a segment that Sweep looked at.
type Swept struct {
	Name    string
	Owner   string
	PID     int   // of the last writer
	Bytes   int64 // of the segment and its sidecar
	Alive   bool  // its writer lives
	Removed bool
	// Damage says what is wrong with its sidecar, nil if nothing is: it is empty, cut
	// short or damaged. Then Owner and PID may not be known.
	Damage error
	Err    error // why it was not removed, or can't be judged
}

// Sweep finds segments whose writer is gone, and removes them if told so. Whether
// a writer lives is known from its lock alone: neither from its pid nor from any
// age. Segments without a sidecar are not ours and not looked at.
//
// A sidecar that is empty, cut short or damaged ([Swept.Damage]) has no label that
// can be read, so it is looked at only with AnyOwner. It is an orphan too if nobody
// holds its lock: a sidecar appears under its name complete and locked, so its writer
// is not about to fill it. The segment beside it goes with it only if the sidecar still
// names the segment's inode, since otherwise vLLM may have made that.
//
// A segment that someone adopts at the same moment is either adopted or removed.
func Sweep(o SweepOptions) ([]Swept, error) {
	if o.Prefix == "" || strings.Contains(o.Prefix, "/") {
		return nil, fmt.Errorf("%w: Prefix %q: want the beginning of the names to sweep", shmring.ErrInvalid, o.Prefix)
	}
	dir := cmp.Or(o.Dir, shmfile.DefaultDir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("shmring: sweeping %s: %w", dir, err)
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

// sweep looks at one segment. ok is false if it is not of those asked for.
func sweep(o SweepOptions, dir, name string) (s Swept, ok bool) {
	s.Name = name
	path := filepath.Join(dir, name)
	c, err := sidecar.Open(dir, name)
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
	defer func() { s.Err = errors.Join(s.Err, c.Close()) }()
	s.Owner, s.PID, s.Bytes = c.Options().Owner, c.State().PID, c.Size()
	if !o.AnyOwner && s.Owner != o.Owner {
		return s, false
	}
	switch err := c.Own(); {
	case errors.Is(err, sidecar.ErrOwned):
		s.Alive = true
	case errors.Is(err, fs.ErrNotExist):
		return s, false
	case errors.As(err, new(*sidecar.FormatError)):
		s.Damage = err // of the state; the header says whose it is, and the lock is ours
	case err != nil:
		s.Err = err
		return s, true
	}
	// Only now: as long as another had the lock the segment could still appear.
	seg, size, err := shmfile.Open(path, false)
	if err == nil {
		defer seg.Close()
		s.Bytes += size
	} else if !errors.Is(err, fs.ErrNotExist) {
		s.Err = err
		return s, true
	}
	if s.Alive {
		return s, true
	}
	if !o.Remove {
		return s, true
	}
	// A segment that is not the sidecar's own was made by something else.
	if seg != nil && c.Describes(seg) && shmfile.Same(seg, path) {
		if s.Err = os.Remove(path); s.Err != nil {
			return s, true
		}
	}
	s.Err = c.Remove()
	s.Removed = s.Err == nil
	return s, true
}

// sweepDamaged looks at a segment whose sidecar can't be read.
func sweepDamaged(o SweepOptions, dir, name string, damage error) (s Swept, ok bool) {
	s = Swept{Name: name, Damage: damage}
	path := filepath.Join(dir, name)
	f, size, err := shmfile.Open(path+sidecar.Suffix, true)
	if err != nil {
		return s, false // gone, or replaced
	}
	defer func() { s.Err = errors.Join(s.Err, f.Close()) }() // gives the lock back
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
	// Before the lock was taken, another could have removed it and made a good one.
	if c, err := sidecar.Open(dir, name); err == nil {
		s.Err = c.Close()
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
	err = os.Remove(path + sidecar.Suffix)
	s.Removed, s.Err = err == nil, errors.Join(kept, err)
	return s, true
}
