package tiertest

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/tier"
)

func place(x *entry) tier.Placed {
	return tier.Placed{Object: x.Object, Offset: x.offset, Bytes: slices.Clip(x.bytes)}
}

// Pin implements tier.Lease.
func (l *mapLease) Pin(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, len(keys))
	err := l.call(func() {
		for i, k := range keys {
			placed[i] = l.pinOne(k)
		}
	})
	for i := range placed {
		if err != nil {
			placed[i].Err = err
		}
	}
	return placed
}

// PinPrefix implements tier.Lease.
func (l *mapLease) PinPrefix(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, 0, len(keys))
	err := l.call(func() {
		for _, k := range keys {
			if placed = append(placed, l.pinOne(k)); placed[len(placed)-1].Err != nil {
				break
			}
		}
	})
	if err != nil && len(keys) > 0 {
		placed = []tier.Placed{{Err: err}}
	}
	return placed
}

func (l *mapLease) pinOne(k tier.Key) tier.Placed {
	x, err := l.m.find(k)
	switch {
	case l.expired:
		err = l.expiredError()
	case err == nil:
		err = l.pin(x)
	}
	if err != nil {
		return tier.Placed{Err: err}
	}
	if !l.noUse {
		l.m.use(x)
	}
	return place(x)
}

// Held implements tier.Lease.
func (l *mapLease) Held(keys []tier.Key) []tier.Placed {
	placed := make([]tier.Placed, len(keys))
	err := l.call(func() {
		of := func(in []*entry, k tier.Key) *entry {
			if i := slices.IndexFunc(in, func(x *entry) bool { return x.Key == k }); i >= 0 {
				return in[i]
			}
			return nil
		}
		for i, k := range keys {
			if x := of(l.pinned, k); x != nil {
				placed[i] = place(x)
			} else if x := of(l.reserved, k); x != nil {
				placed[i] = place(x)
				placed[i].Err = fmt.Errorf("tiertest: object %v: %w", k, tier.ErrPending)
			} else {
				placed[i].Err = fmt.Errorf("tiertest: lease %q does not have object %v: %w", l.id, k, tier.ErrNotFound)
			}
		}
	})
	for i := range placed {
		if err != nil {
			placed[i].Err = err
		}
	}
	return placed
}

func (l *mapLease) pin(x *entry) error {
	if slices.Contains(l.pinned, x) {
		return nil
	}
	if err := l.charge(x, false); err != nil {
		return err
	}
	l.counted(x, 1)
	l.unpin(x.Key) // one that was dropped
	l.pinned = append(l.pinned, x)
	x.pins++
	return nil
}

func (l *mapLease) unpin(k tier.Key) {
	for i, x := range l.pinned {
		if x.Key != k {
			continue
		}
		l.pinned = slices.Delete(l.pinned, i, i+1)
		x.pins--
		if x.pins == 0 && l.m.dropped[x] {
			delete(l.m.dropped, x)
			l.m.bytes -= l.m.size(x.Object)
		}
		l.credit(x)
		return
	}
}

func (l *mapLease) unpinAll() {
	for len(l.pinned) > 0 {
		l.unpin(l.pinned[0].Key)
	}
}

// Unpin implements tier.Lease.
func (l *mapLease) Unpin(keys []tier.Key) {
	_ = l.call(func() { // a lease that has ended has no pins
		for _, k := range keys {
			l.unpin(k)
		}
	})
}
