package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/tier"
)

// Sync is when files are written to the medium.
type Sync int

const (
	// SyncDefault is SyncNever for a root that is not shared if files of its layout have checksums, which find
	// torn files (Native), and SyncFile otherwise: stock readers verify none.
	SyncDefault Sync = iota
	// SyncNever leaves that to the kernel. After a power failure the newest objects may be gone; the
	// checksum finds those that are torn.
	SyncNever
	// SyncFile syncs each file before it is renamed to its path: a file at its path is complete after a power
	// failure, too.
	SyncFile
	// SyncFolder also syncs the folder, so an object that was put is there after a power failure.
	SyncFolder
)

// Options describe a root. The zero value of every field works.
type Options struct {
	// Layout decides where files are, and their form; nil is Native.
	Layout Layout
	// Space, if not empty, is the only space of the root: objects of other spaces are neither found nor
	// stored. A layout whose paths do not contain the space needs it.
	Space string
	// Capacity is the most bytes that files and their folders take, each file rounded up to blocks of the
	// file system, each folder one block. It holds once the index is complete, which finds what was there
	// before. 0 is no limit; then objects are evicted when the file system is full.
	//
	// A root has at most one file or folder for each 64 KiB of its capacity, of its file system without one,
	// and 65,536 in any case; beyond that, objects are evicted as for room. For each the index has
	// up to 400 bytes of memory, 600 where the names of objects are those of files (LMCache), whatever texts
	// the object has: less than 1 % of the capacity, or 40 MB. The garbage collector may take as much again.
	// A shared tree has the bound only if it has a Capacity, which counts the files of others, too; a root
	// that is only read has none.
	Capacity int64
	// Quotas are the most bytes of files of each tenant; Quota that of a tenant that is not in it. 0 is no bound. A
	// tenant that is at its quota pays with its own objects. Of a folder with objects of more than 4096 tenants, the
	// others have none.
	Quotas map[string]int64
	Quota  int64
	// Shared is for a tree that other programs write, read and clean up as well. The folder is searched again
	// and again for their files, a lookup trusts the file and not the index, and an incomplete file younger
	// than MinAge counts as one that another program is writing. On Linux, a file of 1 GiB or more that is
	// nearly all holes is foreign.
	// See docs/decisions.md, "In a tree that others use, a level removes only what is old".
	Shared bool
	// MinAge is how long a file stays after it was written or last asked for, by Stat, Get or Pin,
	// even if room is needed. 0 is none, or 10 minutes if the root is shared: a stock reader checks that a
	// file is there some time before it reads the file, and this level can't see that check. A new process knows when
	// a file was written, and not when it was asked for last.
	MinAge time.Duration
	// Sync is when files are written to the medium.
	Sync Sync
	// Workers is how many files are open at a time, at most; 0 is 4 per processor, and at least 8. An object
	// that is streamed, by From or To, occupies one until the stream ends. Half as many again are open for
	// Stat and Pin, which read the head of a file.
	Workers int
	// KeepDamaged is how many bytes of damaged files stay in .ringcache/damaged for people to look at, beside
	// Capacity; 0 removes them at once.
	KeepDamaged int64
	// ReadOnly opens a root without lock and without writing anything, beside the process that has it,
	// or on a medium that can't be written. Put and Delete answer ErrUnavailable.
	ReadOnly bool

	quotas *atomic.Pointer[evict.Quotas] // as Level.SetQuotas has set them last; Open makes it

	// The rest is for tests.

	now    func() time.Time
	fail   func(op operation, p string) error // an error instead of an operation
	rescan time.Duration                      // between two searches of a shared tree
	retry  time.Duration                      // between two tries to open a root that was removed
	items  int                                // instead of maxItemsFor
}

// Validate reports what is wrong with the options, as an fs.ErrInvalid.
func (o Options) Validate() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("disk: "+format+": %w", append(args, fs.ErrInvalid)...)
	}
	switch {
	case o.Capacity < 0:
		return refuse("Capacity is %d", o.Capacity)
	case o.Quota < 0:
		return refuse("Quota is %d", o.Quota)
	case o.MinAge < 0:
		return refuse("MinAge is %v", o.MinAge)
	case o.Workers < 0:
		return refuse("Workers is %d", o.Workers)
	case o.KeepDamaged < 0:
		return refuse("KeepDamaged is %d", o.KeepDamaged)
	case o.Sync < SyncDefault || o.Sync > SyncFolder:
		return refuse("Sync is %d", o.Sync)
	case len(o.Space) > tier.MaxSpace || strings.IndexByte(o.Space, 0) >= 0:
		return refuse("Space has more than %d bytes, or a zero byte: %q", tier.MaxSpace, o.Space)
	case o.Space == "" && !o.ReadOnly && !separatesSpaces(o.layout()):
		return refuse("files of the layout %s do not contain their space: name it in Options.Space", o.layout().Name())
	}
	for tenant, n := range o.Quotas {
		if n < 0 {
			return refuse("the quota %d of tenant %q is negative", n, tenant)
		}
	}
	return nil
}

// separatesSpaces reports whether equal names of two spaces have different files.
func separatesSpaces(l Layout) bool {
	name := strings.Repeat("0123456789abcdef", 4)
	a, errA := l.Path(tier.Key{Space: "a", Name: name})
	b, errB := l.Path(tier.Key{Space: "b", Name: name})
	return errors.Join(errA, errB) == nil && a != b
}

// HasSums reports whether files of a layout have a checksum of their bytes, whatever the object is. A layout that
// refuses objects without a note counts as one without checksums.
func HasSums(l Layout) bool {
	o := tier.Object{Key: tier.Key{Space: "a", Name: "0123456789abcdef"}}
	a, errA := l.AppendHead(nil, o, 1)
	b, errB := l.AppendHead(nil, o, 2)
	return errors.Join(errA, errB) == nil && !bytes.Equal(a, b)
}

// layout returns the layout with its default, for Validate, which comes before withDefaults.
func (o Options) layout() Layout {
	if o.Layout == nil {
		return Native{}
	}
	return o.Layout
}

// withDefaults replaces zeros by what they stand for.
func (o Options) withDefaults() Options {
	o.Layout = o.layout()
	o.quotas = new(atomic.Pointer[evict.Quotas])
	o.quotas.Store(&evict.Quotas{Of: o.Quotas, Each: o.Quota})
	if o.MinAge == 0 && o.Shared {
		o.MinAge = 10 * time.Minute
	}
	if o.Sync == SyncDefault {
		o.Sync = SyncFile
		if HasSums(o.Layout) && !o.Shared {
			o.Sync = SyncNever
		}
	}
	// More than one file per processor: goroutines that wait for the medium use none.
	if o.Workers == 0 {
		o.Workers = max(8, 4*runtime.GOMAXPROCS(0))
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.rescan == 0 {
		o.rescan = time.Minute
	}
	if o.retry == 0 {
		o.retry = time.Second
	}
	return o
}
