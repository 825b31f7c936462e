package memory

import (
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/tier"
)

// slice is how many objects are pinned or let go at most while others wait for the lock of the level:
// some 0.1 ms.
const slice = 64

// Pin implements tier.Lease.
func (x *lease) Pin(keys []tier.Key) []tier.Placed { return x.pinAll(keys, false) }

// PinPrefix implements tier.Lease.
func (x *lease) PinPrefix(keys []tier.Key) []tier.Placed { return x.pinAll(keys, true) }

func (x *lease) pinAll(keys []tier.Key, prefix bool) []tier.Placed {
	placed := make([]tier.Placed, 0, len(keys))
	for some := range slices.Chunk(keys, slice) {
		placed = x.pinSome(placed, some, prefix)
		if prefix && placed[len(placed)-1].Err != nil {
			break
		}
	}
	return placed
}

func (x *lease) pinSome(placed []tier.Placed, keys []tier.Key, prefix bool) []tier.Placed {
	err := x.enter()
	if err == nil {
		defer x.leave()
		if x.expired {
			err = x.endedError("its time has passed")
		}
	}
	for _, k := range keys {
		p := tier.Placed{Err: err}
		if err == nil {
			p, p.Err = x.pin(k)
		}
		placed = append(placed, p)
		if prefix && p.Err != nil {
			break
		}
	}
	return placed
}

func (x *lease) pin(k tier.Key) (tier.Placed, error) {
	if err := k.Validate(); err != nil {
		return tier.Placed{}, err
	}
	if x.reserved[k] != nil {
		return tier.Placed{}, &objectError{key: k, kind: tier.ErrPending}
	}
	o, err := x.req.Lookup(keyText(k), 0)
	if err != nil {
		return tier.Placed{}, answer(k, err)
	}
	if it := x.pinned[k]; it != nil {
		return x.placed(it)
	}
	it := &item{o: o}
	var ok bool
	if it.object, ok = describe(o); !ok {
		err = &objectError{key: k, kind: tier.ErrNotFound}
	} else if err = x.charge(it, false); err == nil {
		failpoint.Hit("tier.memory.pin")
		if err = x.put(it); err != nil {
			x.credit(it)
			err = answer(k, err)
		}
	}
	if err != nil {
		x.req.DropID(o.Handle().ID)
		return tier.Placed{}, err
	}
	return x.placed(it)
}

// put records an item, which the request has already.
func (x *lease) put(it *item) error {
	err := x.l.touch(func() (err error) {
		r := leasetable.Item{Serial: x.record.Serial, Reserved: it.res != nil}
		if it.res != nil {
			r.Record = recordOf(it.res.Chunk())
		} else {
			r.Record.ID = it.o.Handle().ID
		}
		it.place, err = x.l.table.PutItem(r)
		return err
	})
	if err != nil {
		return err
	}
	x.add(it)
	return nil
}

// add adds an item that is in the table.
func (x *lease) add(it *item) {
	if it.res != nil {
		x.reserved[it.object.Key] = it
	} else {
		x.pinned[it.object.Key] = it
	}
	x.bytes += it.object.Size
}

// remove removes an item that is not in the table any more.
func (x *lease) remove(it *item) {
	delete(x.pinned, it.object.Key)
	delete(x.reserved, it.object.Key)
	x.bytes -= it.object.Size
	x.credit(it)
}

// placed returns where an item is.
func (x *lease) placed(it *item) (tier.Placed, error) {
	h := it.o.Handle()
	p := tier.Placed{Object: it.object, Offset: offset(h, it.object.Size)}
	if it.res != nil {
		p.Bytes = tail(it.res.Bytes(), it.object.Size)
		return p, nil
	}
	b, err := x.req.Bytes(h)
	if err != nil {
		return tier.Placed{}, answer(it.object.Key, err)
	}
	p.Bytes = tail(b, it.object.Size)
	return p, nil
}

// Held implements tier.Lease.
func (x *lease) Held(keys []tier.Key) []tier.Placed {
	if err := x.enter(); err != nil {
		return failAll(len(keys), err)
	}
	defer x.leave()
	placed := make([]tier.Placed, len(keys))
	for i, k := range keys {
		switch it := x.find(k); {
		case it == nil:
			placed[i].Err = &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("lease %q does not have it", x.id)}
		case it.res != nil:
			placed[i] = tier.Placed{Object: it.object, Offset: offset(it.o.Handle(), it.object.Size), Err: &objectError{key: k, kind: tier.ErrPending}}
		default:
			placed[i], placed[i].Err = x.placed(it)
		}
	}
	return placed
}

// Unpin implements tier.Lease.
func (x *lease) Unpin(keys []tier.Key) {
	for some := range slices.Chunk(keys, slice) {
		x.unpinSome(some)
	}
}

func (x *lease) unpinSome(keys []tier.Key) {
	if x.enter() != nil {
		return
	}
	defer x.leave()
	for _, k := range keys {
		if it := x.pinned[k]; it != nil {
			_ = x.unpin(it) // the table is away, and so will be the level
		}
	}
}

func (x *lease) unpin(it *item) error {
	if err := x.drop(it); err != nil {
		return err
	}
	failpoint.Hit("tier.memory.unpin")
	x.req.DropID(it.o.Handle().ID)
	return nil
}

// drop removes an item from the table and the lease.
func (x *lease) drop(it *item) error {
	if err := x.l.touch(func() error { x.l.table.DropItem(it.place); return nil }); err != nil {
		return err
	}
	x.remove(it)
	return nil
}
