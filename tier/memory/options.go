package memory

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"time"

	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/shmstore"
)

// Options say what level to open.
type Options struct {
	// Name of the segment in the directory of shared memory. It must not be empty.
	Name string
	// Size is the bytes for objects, with what the level adds to each. A segment that is taken over must have
	// the same. 0 takes over a segment of any size, and makes none: fs.ErrNotExist if there is none.
	Size int64
	// MaxObjects is the most objects at a time; 0 is one for every 8 KiB of Size, within 1024 and 2^20.
	MaxObjects int
	// MaxLeases is the most open leases, 576 bytes each; 0 is 4096. MaxPins is the most objects that leases
	// have, each counted for each lease, 64 bytes each; 0 is twice the objects of MaxObjects. Both, and MaxObjects, are
	// those of the segment if it is taken over.
	MaxLeases, MaxPins int
	// Quotas bound the bytes of each tenant; Quota those of a tenant that is not in it. 0 is no bound.
	Quotas map[string]int64
	Quota  int64
	// Owner is a label, at most 64 bytes: segment.Sweep removes only segments of the label that it is given.
	Owner string
	// Dir is the directory of shared memory, /dev/shm if empty.
	Dir string
	// Now is the clock that ends leases; nil is time.Now.
	Now func() time.Time
	// Logger gets what was found when the segment was taken over; nil is silence.
	Logger *slog.Logger
}

// Validate reports what is wrong with the options, as an fs.ErrInvalid.
func (o Options) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("memory: %s: %w", fmt.Sprintf(format, args...), fs.ErrInvalid)
	}
	switch {
	case o.Name == "":
		return bad("Name is empty")
	case o.Size != 0 && o.Size < minSize || o.Size > math.MaxInt-frontSize:
		return bad("Size is %d, and the least is %d; 0 takes over a segment that is there", o.Size, minSize)
	case o.MaxObjects < 0 || o.MaxObjects > 1<<24:
		return bad("MaxObjects %d, want at most %d", o.MaxObjects, 1<<24)
	case o.MaxLeases < 0 || o.MaxLeases > 1<<20-1 || o.MaxPins < 0 || o.MaxPins > 1<<24:
		return bad("MaxLeases %d, want at most %d, and MaxPins %d, want at most %d", o.MaxLeases, 1<<20-1, o.MaxPins, 1<<24)
	case o.Quota < 0:
		return bad("Quota %d is negative", o.Quota)
	case len(o.Owner) > 64:
		return bad("Owner has %d bytes, want at most 64", len(o.Owner))
	}
	for tenant, n := range o.Quotas {
		if n < 0 {
			return bad("the quota %d of tenant %q is negative", n, tenant)
		}
	}
	if _, err := leasetable.Path(o.Dir, o.Name); err != nil {
		return fmt.Errorf("memory: Name: %w", err)
	}
	return nil
}

const (
	minSize = 4096
	// frontSize is the bytes of the segment in front of the objects: random ones, of which the generation is
	// made.
	frontSize = 64
	// format names the objects' descriptions, see note.go.
	format = "tier/1"
)

// store returns the options of the store.
func (o Options) store() shmstore.Options {
	return shmstore.Options{
		Name: o.Name, Dir: o.Dir, Size: int(o.Size), DataOffset: frontSize, MaxObjects: o.maxObjects(), Format: format, Owner: o.Owner,
		Quotas: o.Quotas, Quota: o.Quota, Parent: parentKey, QuarantineTTL: -1, NoHandles: true,
		Payloads: func(*shmstore.Store) shmstore.PayloadOwner { return uncounted{} },
	}
}

func (o Options) maxObjects() int {
	if o.MaxObjects > 0 {
		return o.MaxObjects
	}
	return int(min(max(o.Size/(8<<10), 1<<10), 1<<20))
}

// table returns the options of the table of leases.
func (o Options) table(generation uint64, caution time.Time) leasetable.Options {
	t := leasetable.Options{Leases: o.MaxLeases, Items: o.MaxPins, Generation: generation, Caution: caution}
	if t.Leases == 0 {
		t.Leases = 4096
	}
	t.Leases++ // one is spare
	if t.Items == 0 {
		t.Items = 2 * o.maxObjects()
	}
	return t
}
