package memory

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// slice is how many objects are pinned or let go at most while others wait for the lock of the level:
// some 0.1 ms.
const slice = 64

// maxGrown is the largest number of objects for which a lease takes memory before it has them.
const maxGrown = 4096

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

// pinSome pins a slice of objects under one lock: each in the store, and then those that are new for the
// lease in the table, in one go.
func (x *lease) pinSome(placed []tier.Placed, keys []tier.Key, prefix bool) []tier.Placed {
	if err := x.enterUnexpired(); err != nil {
		if prefix {
			keys = keys[:1]
		}
		return append(placed, slices.Repeat([]tier.Placed{{Err: err}}, len(keys))...)
	}
	defer x.leave()
	begin := len(placed)
	if begin == slice && len(x.pinned) == slice { // the first slice was there, so most of the others will be
		grown := make(map[tier.Key]*item, min(cap(placed), maxGrown))
		maps.Copy(grown, x.pinned)
		x.pinned = grown
	}
	fresh := make([]*item, 0, len(keys))
	for _, k := range keys {
		it, isNew, err := x.hold(k)
		if isNew {
			fresh = append(fresh, it)
		}
		p := tier.Placed{Err: err}
		if err == nil {
			p, p.Err = x.placed(it)
		}
		placed = append(placed, p)
		if prefix && p.Err != nil {
			break
		}
	}
	failpoint.Hit("tier.memory.pin")
	x.recordAll(fresh, placed[begin:])
	if miss := slices.IndexFunc(placed[begin:], func(p tier.Placed) bool { return p.Err != nil }); prefix && miss >= 0 {
		return placed[:begin+miss+1]
	}
	return placed
}

// hold lets the store keep an object for the lease. What is new for the lease is not in the table yet.
func (x *lease) hold(k tier.Key) (it *item, isNew bool, err error) {
	if err := k.Validate(); err != nil {
		return nil, false, err
	}
	if x.reserved[k] != nil {
		return nil, false, &objectError{key: k, kind: tier.ErrPending}
	}
	o, err := hold(x.req, k, x.noUse) // also what the lease has: it is a use
	if err != nil {
		return nil, false, answer(k, err)
	}
	if it = x.pinned[k]; it != nil {
		return it, false, nil
	}
	it = &item{o: o}
	var ok bool
	if it.object, ok = describeAs(k, o); !ok {
		err = &objectError{key: k, kind: tier.ErrNotFound}
	} else {
		err = x.charge(it, false)
	}
	if err != nil {
		x.req.DropObject(o)
		return nil, false, err
	}
	x.add(it)
	return it, true, nil
}

// hold lets the store keep an object until a request ends.
func hold(r *shmstore.Request, k tier.Key, noUse bool) (*shmstore.Object, error) {
	if noUse {
		return r.HoldKey(keyText(k))
	}
	return r.Lookup(keyText(k), 0)
}

// recordAll puts into the table what is new for the lease, and answered for in placed. What finds no room there
// is given up again, and the answer about it is the error.
func (x *lease) recordAll(fresh []*item, placed []tier.Placed) {
	done := 0
	err := x.l.touch(func() (err error) {
		for _, it := range fresh {
			r := leasetable.Item{Serial: x.record.Serial}
			if r.Record.ID = it.o.Handle().ID; it.res != nil {
				r.Reserved, r.Record = true, recordOf(it.res.Chunk())
			}
			if it.place, err = x.l.table.PutItem(r); err != nil {
				return err
			}
			done++
		}
		return nil
	})
	if err == nil {
		return
	}
	for _, it := range fresh[done:] {
		x.remove(it)
		x.letGo(it)
	}
	for i, p := range placed {
		if p.Err == nil && x.find(p.Object.Key) == nil {
			placed[i] = tier.Placed{Err: answer(p.Object.Key, err)}
		}
	}
}

// add adds an item, which is in the table or will be before the call ends.
func (x *lease) add(it *item) {
	if it.res != nil {
		if x.reserved == nil {
			x.reserved = map[tier.Key]*item{}
		}
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
	b, err := x.req.Bytes(it.o)
	if err != nil {
		return tier.Placed{}, answer(it.object.Key, err)
	}
	p.Bytes = tail(b, it.object.Size)
	return p, nil
}

// Held implements tier.Lease.
func (x *lease) Held(keys []tier.Key) []tier.Placed {
	if err := x.enter(); err != nil {
		return slices.Repeat([]tier.Placed{{Err: err}}, len(keys))
	}
	defer x.leave()
	placed := make([]tier.Placed, len(keys))
	for i, k := range keys {
		switch it := x.find(k); {
		case it == nil:
			placed[i].Err = &objectError{key: k, kind: tier.ErrNotFound, cause: fmt.Errorf("lease %q does not have it", x.id)}
		case it.res != nil:
			placed[i], _ = x.placed(it) // of a reservation there is no error
			placed[i].Err = &objectError{key: k, kind: tier.ErrPending}
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
	items := make([]*item, 0, len(keys))
	for _, k := range keys {
		if it := x.pinned[k]; it != nil {
			items = append(items, it)
		}
	}
	_ = x.drop(items) // the table is away, and so will be the level
}

// drop gives items up, each once: first in the table, in one go, and then in the store.
func (x *lease) drop(items []*item) error {
	dropped := make([]*item, 0, len(items))
	err := x.l.touch(func() error {
		for _, it := range items {
			if x.find(it.object.Key) == it {
				x.l.table.DropItem(it.place)
				x.remove(it)
				dropped = append(dropped, it)
			}
		}
		return nil
	})
	for _, it := range dropped {
		x.letGo(it)
	}
	return err
}

// letGo ends what the store keeps for an item that the lease does not have any more.
func (x *lease) letGo(it *item) {
	if it.res != nil {
		failpoint.Hit("tier.memory.abort")
		it.res.Discard()
		return
	}
	failpoint.Hit("tier.memory.unpin")
	x.req.DropObject(it.o)
}
