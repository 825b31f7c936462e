package memory

import "github.com/ringcache/ringcache/tier"

// leased is what leases with an account have.
type leased struct {
	holders map[uint32]int // leases of an object, by the ID of its chunk
	bytes   int64          // of objects, each once
	pins    int64          // and reservations, each object for each lease
}

// add counts an object that one more lease has.
func (l *leased) add(it *item) {
	id := it.o.Handle().ID
	if l.holders[id]++; l.holders[id] == 1 {
		l.bytes += it.object.Size
	}
	l.pins++
}

// remove counts an object that one lease less has.
func (l *leased) remove(it *item) {
	id := it.o.Handle().ID
	if l.holders[id]--; l.holders[id] == 0 {
		delete(l.holders, id)
		l.bytes -= it.object.Size
	}
	l.pins--
}

// charge asks the account of a lease, if it has one, for an object that the lease is about to get, or
// has got before it had the account. One that is about to be reserved has no chunk yet: its charge is
// complete with leased.add, or taken back with Credit.
func (x *lease) charge(it *item, had bool) error {
	if x.account == nil {
		return nil
	}
	l := &x.l.leased
	c := tier.Charge{Size: it.object.Size, Had: had, Objects: int64(len(l.holders)), Bytes: l.bytes, Pins: l.pins + 1}
	if it.o == nil || l.holders[it.o.Handle().ID] == 0 {
		c.Objects++
		c.Bytes += c.Size
	}
	if err := x.account.Charge(c); err != nil && !had {
		return &objectError{key: it.object.Key, cause: err}
	}
	if it.o != nil {
		l.add(it)
	}
	return nil
}

// credit takes a charge back.
func (x *lease) credit(it *item) {
	if x.account == nil {
		return
	}
	x.l.leased.remove(it)
	x.account.Credit(it.object.Size)
}

// setAccount gives a lease an account in place of the one that it has, if any.
func (x *lease) setAccount(a tier.Account) {
	if a == nil {
		return
	}
	for it := range x.all() {
		x.credit(it)
	}
	x.account = a
	for it := range x.all() {
		_ = x.charge(it, true) // it can't be refused
	}
}
