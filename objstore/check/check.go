package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
)

// Options configure [Segment].
type Options struct {
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Handles name chunks, by address and id: all that is checked of the chunks of a segment
	// without a sidecar, or with the policy fifo. Handles of a pool are checked besides.
	Handles []serde.Address
	// RingSize is the bytes of the ring, if not 0. Otherwise it follows from the size of the
	// segment.
	RingSize int
	// Generation is that of the writer. nil is the sidecar's, and without a sidecar the newest.
	Generation *pycompat.Generation
	// Patience bounds how long something is looked at again that a living writer may be about
	// to change. 0 is two seconds. A writer that was stopped in the middle of a change for
	// longer is reported.
	Patience time.Duration
	// Progress, if not nil, is called with how many entries of the table were looked at, of how many.
	Progress func(done, all int)
}

// Finding is a word that is not as it must be.
type Finding struct {
	File   string `json:"file"` // the name of the segment, or that of its sidecar
	Offset int64  `json:"offset"`
	What   string `json:"what"`
	Want   string `json:"want"`
	Got    string `json:"got"`
}

// String is one line, with the file and the offset in it.
func (f Finding) String() string {
	return fmt.Sprintf("%s: offset %d: %s: want %s, got %s", f.File, f.Offset, f.What, f.Want, f.Got)
}

// Report is what Segment has found.
type Report struct {
	Segment string `json:"segment"`
	// Policy is "fifo" or "pool" by the sidecar, or "foreign" without one.
	Policy string `json:"policy"`
	// Format is the vLLM version of the wire, or the format of opaque payloads.
	Format  string `json:"format"`
	Alive   bool   `json:"alive"`   // a writer has the lock
	PID     int    `json:"pid"`     // of the last writer, by its own account
	Readers int    `json:"readers"` // that have a slot
	// DeadReaders have died with a slot. The next reader, or the writer, takes it.
	DeadReaders int `json:"dead_readers"`
	// Chunks and Bytes are what was compared; checksums may cover samples of large chunks.
	Chunks int   `json:"chunks"`
	Bytes  int64 `json:"bytes"`
	// Busy is the number of chunks that came and went too fast to be looked at.
	Busy     int       `json:"busy"`
	Findings []Finding `json:"findings"`
}

// checker checks one segment.
type checker struct {
	name    string
	opt     Options
	report  *Report
	control *sidecar.File // nil if the segment is foreign
	seg     *segment.Segment
	wire    *pycompat.Generation // nil if payloads are opaque
}

// Segment checks the segment name. An error means that it could not be checked: fs.ErrNotExist,
// [segment.ErrForeign] without a sidecar and without handles, a file of another user, or a format
// of a later release. What is wrong in the bytes is in the report.
func Segment(name string, o Options) (*Report, error) {
	c := &checker{name: name, opt: o, report: &Report{Segment: name, Findings: []Finding{}}}
	if c.opt.Patience == 0 {
		c.opt.Patience = 2 * time.Second
	}
	err := c.run()
	if errors.Is(err, fault.ErrFault) {
		c.add(Finding{c.name, 0, "memory", "as long as the file was", err.Error()})
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	return c.report, nil
}

func (c *checker) run() (err error) {
	if err := c.openSidecar(); err != nil {
		return err
	}
	if c.control == nil && len(c.opt.Handles) == 0 {
		return nil // the sidecar is damaged
	}
	if c.control != nil {
		defer func() { err = errors.Join(err, c.control.Close()) }()
		if err := c.chooseWire(); err != nil {
			return err
		}
		if err := c.checkState(); err != nil {
			return err
		}
	} else {
		if c.wire, err = pycompat.Resolve(c.opt.Generation); err != nil {
			return err
		}
		c.report.Format = c.wire.Version
	}
	ok, err := c.attach()
	if err != nil || !ok {
		return err
	}
	defer func() { err = errors.Join(err, c.seg.Close()) }()
	if c.control != nil && c.control.Options().Policy == sidecar.Pool {
		if err := fault.Guard(c.checkTable); err != nil {
			return err
		}
	}
	return fault.Guard(c.checkHandles)
}

func (c *checker) add(f ...Finding) { c.report.Findings = append(c.report.Findings, f...) }

// inSidecar returns findings of the sidecar as those of its file.
func (c *checker) inSidecar(found ...sidecar.Finding) (out []Finding) {
	for _, f := range found {
		out = append(out, Finding{c.name + sidecar.Suffix, f.Offset, f.What, f.Want, f.Got})
	}
	return out
}

func (c *checker) openSidecar() error {
	f, err := sidecar.OpenToLook(c.opt.Dir, c.name)
	bad := (*sidecar.FormatError)(nil)
	switch {
	case err == nil:
		c.control = f
		o := f.Options()
		c.report.Policy, c.report.Format, c.report.PID = o.Policy.String(), o.Generation, f.State().PID
		return nil
	case errors.As(err, &bad) && !bad.Newer:
		c.report.Policy = "unknown"
		c.add(Finding{c.name + sidecar.Suffix, int64(bad.Offset), "sidecar", "one that can be read", bad.What})
	case errors.Is(err, sidecar.ErrForeign):
		c.report.Policy = "foreign"
		if path, e := shmfile.Path(c.opt.Dir, c.name); e != nil {
			return e
		} else if _, e := os.Stat(path); e != nil {
			return e
		}
		if len(c.opt.Handles) == 0 {
			return fmt.Errorf("%w: where the chunks of %s begin is in the memory of the process that wrote it; name them by their handles, address and id", segment.ErrForeign, c.name)
		}
	default:
		return err
	}
	return nil
}

// chooseWire finds the format of the payloads.
func (c *checker) chooseWire() (err error) {
	if c.opt.Generation != nil {
		c.wire, err = pycompat.Resolve(c.opt.Generation)
		return err
	}
	format := c.control.Options().Generation
	if c.wire, err = pycompat.Lookup(format); err == nil {
		return nil
	}
	c.wire = nil
	if looksLikeRelease(format) || c.control.Options().Policy == sidecar.FIFO {
		return fmt.Errorf("%w; name a release that has its wire", err)
	}
	return nil
}

func looksLikeRelease(format string) bool {
	var major, minor int
	_, err := fmt.Sscanf(format, "%d.%d", &major, &minor)
	return err == nil
}

// attach maps the segment. ok is false if it can't be, which is a finding then.
func (c *checker) attach() (ok bool, err error) {
	path, err := shmfile.Path(c.opt.Dir, c.name)
	if err != nil {
		return false, err
	}
	st, err := os.Stat(path)
	if err != nil {
		if c.control != nil && c.persists(c.missing(path)) {
			return false, nil
		}
		return false, err
	}
	offset, size := 0, c.opt.RingSize
	if c.wire != nil {
		offset = c.wire.DataOffset
	}
	if c.control != nil {
		o := c.control.Options()
		if size != 0 && size != o.RingSize {
			c.add(Finding{c.name + sidecar.Suffix, 16, "size of the ring", fmt.Sprint(size), fmt.Sprint(o.RingSize)})
		}
		offset, size = o.DataOffset, o.RingSize
	}
	there := st.Size() - int64(offset)
	if size != 0 && there != int64(size) || there <= shmring.HeaderSize {
		want := fmt.Sprint(int64(offset) + int64(size))
		if size == 0 {
			want = fmt.Sprintf("more than %d", offset+shmring.HeaderSize)
		}
		c.add(Finding{c.name, st.Size(), "bytes of the segment", want, fmt.Sprint(st.Size())})
	}
	if there <= shmring.HeaderSize {
		return false, nil
	}
	c.seg, err = segment.Attach(segment.Options{
		Name: c.name, Dir: c.opt.Dir, RingSize: int(there), DataOffset: offset, ReadOnly: true,
	})
	if err != nil {
		return false, err
	}
	if c.control != nil && !sidecar.Matches(c.seg, c.control) {
		c.add(Finding{c.name + sidecar.Suffix, 40, "inode and device of the segment", "those of " + c.name, "others"})
	}
	return true, nil
}

// missing looks for a segment that has a sidecar: the sidecar comes first.
func (c *checker) missing(path string) func() ([]Finding, error) {
	return func() ([]Finding, error) {
		if _, err := os.Stat(path); err == nil {
			return nil, nil
		}
		return []Finding{{c.name, 0, "segment", "beside its sidecar", "none"}}, nil
	}
}

// persists adds what every one of several looks has found, and reports whether there is any.
func (c *checker) persists(look func() ([]Finding, error)) bool {
	found, err := look()
	began, looks := time.Now(), 1
	for wait := 100 * time.Microsecond; err == nil && len(found) > 0; wait = min(2*wait, 50*time.Millisecond) {
		if c.control != nil && !c.report.Alive { // or an adopter came
			if c.report.Alive, err = c.control.Alive(); err != nil {
				break
			}
		}
		if looks >= 3 && (!c.report.Alive || time.Since(began) >= c.opt.Patience) {
			break
		}
		time.Sleep(wait)
		again, e := look()
		err = e
		found = slices.DeleteFunc(found, func(f Finding) bool { return !slices.Contains(again, f) })
		looks++
	}
	if err != nil {
		found = []Finding{{c.name + sidecar.Suffix, 0, "memory", "as long as the file was", err.Error()}}
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.Offset, b.Offset) })
	c.add(found...)
	return len(found) > 0
}

func (c *checker) checkState() (err error) {
	if c.report.Alive, err = c.control.Alive(); err != nil {
		return err
	}
	c.persists(func() (found []Finding, err error) {
		err = fault.Guard(func() error {
			_, bad, _ := c.control.LookAtState()
			found = c.inSidecar(bad...)
			return nil
		})
		return found, err
	})
	c.persists(func() (found []Finding, err error) {
		err = fault.Guard(func() error {
			taken, dead, bad := c.control.LookAtSlots()
			c.report.Readers, c.report.DeadReaders = taken, dead
			found = c.inSidecar(bad...)
			return nil
		})
		return found, err
	})
	return nil
}
