package memory

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// Open opens the level of a segment. It takes over what a process left that was killed, or closed its level,
// and makes a new segment if there is none. The errors are segment.ErrOwned if the process lives,
// segment.ErrSize if the segment has another size, segment.ErrForeign and fs.ErrInvalid if it is something
// else, segment.ErrNoSpace, and those of segment.Adopt and segment.Create. After an error everything is as
// before.
func Open(o Options) (*Level, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	makes := o.Size != 0
	if !makes {
		if err := o.findSize(); err != nil {
			return nil, fmt.Errorf("memory: opening segment %s: %w", o.Name, err)
		}
	}
	var l *Level
	var err error
	for range 3 { // another process may create or remove it meanwhile
		if l, err = adopt(o); !makes || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if l, err = create(o); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("memory: opening segment %s: %w", o.Name, err)
	}
	return l, nil
}

// findSize sets Size to that of the segment, by its sidecar.
func (o *Options) findSize() error {
	c, err := sidecar.OpenToLook(o.Dir, o.Name)
	if errors.Is(err, sidecar.ErrForeign) {
		return errors.Join(err, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	o.Size = int64(c.Options().RingSize)
	return c.Close()
}

func newLevel(o Options, store *shmstore.Store) *Level {
	l := &Level{o: o, log: o.Logger, now: o.Now, store: store, seg: store.Segment(), gen: generation(store.Segment()), leases: map[string]*lease{}, leased: leased{holders: map[uint32]int{}}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.begun = l.now()
	l.setNext()
	return l
}

// generation returns the generation of a segment: part of the random bytes in front of it.
func generation(s *segment.Segment) uint64 { return GenerationOf(s.Secret()) }

// GenerationOf returns the generation of a level's segment, by the first 8 bytes of its file, or more of them.
func GenerationOf(front []byte) uint64 {
	if g := binary.LittleEndian.Uint64(front); g != 0 {
		return g
	}
	return 1
}

func create(o Options) (*Level, error) {
	store, err := shmstore.Create(o.store())
	if err != nil {
		return nil, err
	}
	failpoint.Hit("tier.memory.created")
	l := newLevel(o, store)
	if l.table, err = leasetable.Create(o.Dir, o.Name, o.table(l.gen, time.Time{})); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return l, nil
}

func adopt(o Options) (*Level, error) {
	so := o.store()
	seg, err := segment.Adopt(segment.Options{Name: o.Name, Dir: o.Dir, RingSize: so.Size, DataOffset: frontSize})
	if err != nil {
		return nil, err
	}
	l, err := adoptIn(seg, o, so)
	if err != nil {
		return nil, errors.Join(err, seg.Close())
	}
	return l, nil
}

// adoptIn makes a level of what is in a segment, whose writer's lock this process has.
func adoptIn(seg *segment.Segment, o Options, so shmstore.Options) (*Level, error) {
	var gen uint64
	if err := fault.Guard(func() error { gen = generation(seg); return nil }); err != nil {
		return nil, seg.Explain(err)
	}
	// The store refuses what is another's before anything is changed, and the table with it.
	if format := sidecar.Of(seg).Options().Generation; format != so.Format {
		return nil, fmt.Errorf("its format is %q, not %q, so something else made it: %w", format, so.Format, fs.ErrInvalid)
	}
	table, found, damage := load(o, gen)
	if damage != nil && !errors.Is(damage, leasetable.ErrDamaged) && !errors.Is(damage, fs.ErrNotExist) {
		return nil, damage
	}
	l, adoption, err := takeOver(seg, o, so, found)
	if err == nil {
		err = l.takeTable(table, found, damage, adoption)
		table = nil
	}
	if err != nil {
		if table != nil {
			err = errors.Join(err, table.Close())
		}
		return nil, err
	}
	failpoint.Hit("tier.memory.table")
	pinned, reserved, err := l.restore(found)
	if err != nil {
		return nil, errors.Join(err, l.table.Close(), l.store.Yield())
	}
	leases := len(l.leases)
	l.mu.Lock() // a large lease whose time has passed goes in the background
	l.fence = l.store.Fence()
	l.expire()
	if !l.cautious() {
		l.fence.Passed()
	}
	l.mu.Unlock()
	l.log.Info("took a segment over", "segment", o.Name, "objects", adoption.Kept, "damaged", adoption.Dropped, "clean", adoption.Clean,
		"leases", leases, "pins", pinned, "reservations", reserved)
	failpoint.Hit("tier.memory.restored")
	return l, nil
}

// takeOver makes a store of what is in a segment.
func takeOver(seg *segment.Segment, o Options, so shmstore.Options, found []*leasetable.Loaded) (*Level, shmstore.Adoption, error) {
	for _, x := range found {
		for _, it := range x.Items {
			if it.Reserved {
				so.Reserved = append(so.Reserved, chunkOf(it.Record))
			}
		}
	}
	so.Segment = seg
	store, adoption, err := shmstore.Adopt(so)
	if err != nil {
		return nil, adoption, err
	}
	failpoint.Hit("tier.memory.adopted")
	l := newLevel(o, store)
	l.corrupt = int64(adoption.Dropped)
	return l, adoption, nil
}

// load opens the table of leases of the process before. A table of which a part is damaged is damage, and what could be
// read of it.
func load(o Options, gen uint64) (table *leasetable.Table, found []*leasetable.Loaded, damage error) {
	table, err := leasetable.Open(o.Dir, o.Name, gen)
	if err == nil {
		err = fault.Guard(func() error { found = table.Load(); return nil })
	}
	if errors.Is(err, fault.ErrFault) {
		err = fmt.Errorf("%w: %w", leasetable.ErrDamaged, err)
	}
	if err == nil && table.Damaged {
		err = fmt.Errorf("%w: some of its records are", leasetable.ErrDamaged)
	}
	if err != nil && table != nil {
		err = errors.Join(err, table.Close())
		table = nil
	}
	return table, found, err
}

// takeTable makes the level go on with a table, or makes a new one where that was damaged, with what could be read of
// it.
func (l *Level) takeTable(table *leasetable.Table, found []*leasetable.Loaded, damage error, a shmstore.Adoption) error {
	if damage == nil {
		l.table = table
		l.setCaution(table.Options().Caution)
		return nil
	}
	var caution time.Time
	// The last writer may have been killed before it made a table.
	if a.Kept+a.Dropped > 0 || !errors.Is(damage, fs.ErrNotExist) {
		caution = l.now().Add(cautionTime)
		l.log.Warn("the table of leases is damaged: what may be in use stays for ten minutes, and nothing is stored meanwhile",
			"segment", l.o.Name, "error", damage)
	}
	t := l.o.table(l.gen, caution)
	items := 0
	for _, x := range found {
		items += len(x.Items)
	}
	t.Leases, t.Items = max(t.Leases, len(found)+2), max(t.Items, items)
	var err error
	t.Replace = true
	if l.table, err = leasetable.Create(l.o.Dir, l.o.Name, t); err != nil {
		return errors.Join(err, l.store.Yield())
	}
	err = l.touch(func() error { return l.table.Save(found) })
	if err != nil {
		return errors.Join(err, l.table.Close(), l.store.Yield())
	}
	l.setCaution(caution)
	return nil
}

// restore leases what leases of the process before had: objects by their ids, and reservations in their places.
func (l *Level) restore(found []*leasetable.Loaded) (pinned, reserved int, err error) {
	slices.SortFunc(found, func(a, b *leasetable.Loaded) int { return cmp.Compare(a.Serial, b.Serial) })
	for _, f := range found {
		l.serial = max(l.serial, f.Serial)
		x := l.newLease(f.ID, f.Owner)
		x.record, x.place, x.until, x.fromRestart = f.Lease, f.Record, leasetable.Time(f.Until), true
		if x.req, err = l.store.Begin(shmstore.RequestOptions{ID: leasePrefix + f.ID}); err != nil {
			return pinned, reserved, err
		}
		l.leases[f.ID] = x
		x.waitForUntil()
		for at, record := range f.Items {
			if err := x.resume(at, record); err != nil {
				return pinned, reserved, err
			}
		}
		pinned += len(x.pinned)
		reserved += len(x.reserved)
	}
	return pinned, reserved, nil
}

// resume takes one object of a lease over. What was damaged is dropped from the lease, too.
func (x *lease) resume(place int, f leasetable.Item) error {
	l := x.l
	it := &item{place: place}
	var err error
	if f.Reserved {
		if it.res, err = x.req.Resume(f.Record.ID); err == nil {
			it.o = it.res.Object()
		}
	}
	if it.o == nil { // or it was committed
		it.o, err = x.req.HoldID(f.Record.ID)
	}
	var ok bool
	if err == nil {
		if it.object, ok = describe(it.o); !ok {
			h := it.o.Handle()
			it.object = tier.Object{Key: tier.Key{Name: fmt.Sprintf("(lost %d)", h.ID)}, Size: int64(h.Length) - lead}
			it.lost = true
		}
		duplicate := x.find(it.object.Key)
		ok = duplicate == nil
		if duplicate != nil && duplicate.o == it.o {
			it.o = nil // two records of one object: the other one keeps it
		}
	}
	if !ok {
		l.log.Warn("an object of a lease is gone: see what else writes to the segment", "segment", l.o.Name, "lease", x.id, "id", f.Record.ID, "error", err)
		if it.res != nil {
			it.res.Discard()
		} else if it.o != nil {
			x.req.DropObject(it.o)
		}
		return l.touch(func() error { l.table.DropItem(place); return nil })
	}
	x.add(it)
	if f.Reserved && it.res == nil {
		return l.touch(func() error { l.table.SetPinned(place); return nil })
	}
	return nil
}
