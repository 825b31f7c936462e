package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/payload"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring"
)

const policyForeign = "foreign"

// Segment is a segment that is open to be looked at.
type Segment struct {
	name, dir string
	file      *os.File      // nil if there is only a sidecar
	bytes     int64         // of file
	control   *sidecar.File // nil if the segment has none, or a damaged one
	problem   error         // of the sidecar
	brief     bool          // see Options

	base, size int64                // where the ring begins in file, and its bytes
	wire       *pycompat.Generation // nil if payloads are not vLLM's
	pool       *shmring.Pool        // for its rules; nil of a ring
}

// Open opens a segment. See the package comment for its errors.
func Open(name string, o Options) (x *Segment, err error) {
	path, err := shmfile.Path(o.Dir, name)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	x = &Segment{name: name, dir: cmp.Or(o.Dir, shmfile.DefaultDir), brief: o.Brief}
	defer func() {
		if err != nil {
			err = fmt.Errorf("inspect: %w", errors.Join(err, x.Close()))
			x = nil
		}
	}()
	x.control, err = sidecar.OpenToLook(o.Dir, name)
	bad := (*sidecar.FormatError)(nil)
	foreign := errors.Is(err, sidecar.ErrForeign)
	switch {
	case err == nil:
	case errors.As(err, &bad), errors.Is(err, fault.ErrFault):
		x.problem = err
	case !foreign:
		return x, err
	}
	if x.file, x.bytes, err = shmfile.Open(path, false); err != nil {
		if !errors.Is(err, fs.ErrNotExist) || foreign {
			return x, err
		}
		x.file, err = nil, nil
	}
	if x.control != nil {
		h := x.control.Options()
		x.base, x.size = int64(h.DataOffset), int64(h.RingSize)
		x.wire, _ = pycompat.Lookup(h.Generation) // else the payloads are of something else
		if h.Policy == sidecar.Pool {
			x.pool = payload.Pool(nil, h, x.wire == nil)
		}
		return x, nil
	}
	if x.file != nil {
		x.findRing(o.Generation)
	}
	return x, nil
}

// Close closes all files. Closing twice is fine.
func (x *Segment) Close() (err error) {
	if x.file != nil {
		err = x.file.Close()
		x.file = nil
	}
	if x.control != nil {
		err = errors.Join(err, x.control.Close())
		x.control = nil
	}
	return err
}

// Summary describes the segment as it is now.
func (x *Segment) Summary() (Summary, error) { return x.describe(openFiles(x.dir)) }

func (x *Segment) describe(opened func(dev, ino uint64) []int) (s Summary, err error) {
	s = unknown(x.name)
	if x.file != nil {
		st, err := x.file.Stat()
		if err != nil {
			return s, fmt.Errorf("inspect: %w", err)
		}
		s.Bytes, s.UID, s.Made = st.Size(), uidOf(st), madeAt(x.file)
	}
	if x.control == nil {
		x.describeForeign(&s, opened)
		return s, nil
	}
	err = fault.Guard(func() error { return x.describeOurs(&s) })
	if errors.Is(err, fault.ErrFault) {
		s.State, s.Problem, err = Damaged, "its sidecar was cut short: "+err.Error(), nil
	}
	return s, err
}

// describeForeign describes a segment without a sidecar that can be read.
func (x *Segment) describeForeign(s *Summary, opened func(dev, ino uint64) []int) {
	s.State, s.Policy = Foreign, policyForeign
	s.Size, s.DataOffset = x.size, x.base
	if x.wire != nil {
		s.Format = x.wire.Version
	}
	if x.problem != nil {
		s.State, s.Policy, s.Problem = Damaged, "unknown", x.problem.Error()
	}
	if x.file == nil {
		return
	}
	if dev, ino, err := shmfile.Identity(x.file); err == nil {
		s.OpenBy = opened(dev, ino)
	}
	if x.problem != nil {
		return
	}
	laps := x.follow()
	s.Objects = int64(len(laps.chunks))
	if laps.cut {
		s.Problem = fmt.Sprintf("there are more than %d chunks; only the first are shown", maxChunks)
	}
}

// describeOurs describes a segment with a sidecar. It is called in a guard.
func (x *Segment) describeOurs(s *Summary) error {
	h, state := x.control.Options(), x.control.State()
	s.Policy, s.Format, s.Owner = h.Policy.String(), h.Generation, h.Owner
	s.Size, s.DataOffset, s.MaxObjects, s.ReaderSlots = x.size, x.base, int64(h.Objects), h.Slots
	s.PID, s.Epoch, s.Leases = state.PID, state.Epoch, 0
	bytes := s.Bytes // of the segment, now
	s.Bytes = max(bytes, 0) + x.control.Size() + shmfile.BesideSize(filepath.Join(x.dir, x.name))
	alive, err := x.control.Alive()
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	switch {
	case alive:
		s.State = Alive
	case state.Clean && !state.Damaged:
		s.State = Closed
	default:
		s.State = Orphan
	}
	next, _, ok := x.control.LookAtState()
	if ok {
		s.NextID = int64(next)
	} else if !alive { // a writer may just be changing both
		s.State, s.Problem = Damaged, "neither of its state records is whole"
	}
	s.Readers, s.DeadReaders, _ = x.control.LookAtSlots()
	switch {
	case x.file == nil:
		s.State, s.Problem = Damaged, "it has a sidecar, and the segment is gone"
		return nil
	case !x.control.Describes(x.file):
		s.State, s.Problem = Damaged, "its sidecar belongs to another segment"
		return nil
	case bytes != x.base+x.size:
		s.State = Damaged
		s.Problem = fmt.Sprintf("the segment has %d bytes, and its sidecar is for %d", bytes, x.base+x.size)
	}
	if x.pool == nil {
		s.Objects = int64(len(x.follow().chunks))
		return nil
	}
	s.Objects, s.Used, s.InUse, s.Damaged = 0, 0, 0, 0
	leases, err := x.leases()
	if err != nil && s.Problem == "" {
		s.Problem = err.Error()
	}
	s.Leases = len(leases)
	for _, l := range leases {
		for _, r := range l.Reserved {
			s.Used += x.extent(r)
		}
	}
	for i := range h.Objects {
		e := x.control.LookAtEntry(i)
		if e.Free {
			continue
		}
		if e.Damaged || !x.fits(e.Record) {
			if x.control.Has(e) {
				s.Damaged++
			}
			continue
		}
		s.Objects++
		s.Used += x.extent(e.Record)
		if use, ok := x.control.Use(i); ok && use&payload.UseBusy != 0 {
			s.InUse++
		}
	}
	return nil
}

// fits reports whether a chunk is within the ring.
func (x *Segment) fits(r sidecar.Record) bool {
	return r.Size >= shmring.HeaderSize && r.ID < shmring.IDLimit &&
		r.Address <= uint64(x.size) && uint64(r.Size) <= uint64(x.size)-r.Address
}

// extent returns the bytes that a chunk takes, 0 of one that is not within the ring.
func (x *Segment) extent(r sidecar.Record) int64 {
	if !x.fits(r) {
		return 0
	}
	return int64(x.pool.Extent(r.Size - shmring.HeaderSize))
}
