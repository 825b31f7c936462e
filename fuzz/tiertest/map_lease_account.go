package tiertest

import (
	"slices"

	"github.com/ringcache/ringcache/tier"
)

// charge asks the account for an object that the lease is about to get, or has. counted has to follow.
func (l *mapLease) charge(x *entry, had bool) error {
	if l.account == nil {
		return nil
	}
	c := tier.Charge{Size: x.Size, Had: had, Objects: l.m.leased.Objects, Bytes: l.m.leased.Bytes,
		Pins: l.m.leased.Pins + 1}
	if x.charged == 0 {
		c.Objects++
		c.Bytes += x.Size
	}
	if err := l.account.Charge(c); err != nil && !had {
		return err
	}
	return nil
}

// counted counts an object that the account was charged for, or n is -1 and the charge is taken back.
func (l *mapLease) counted(x *entry, n int64) {
	if l.account == nil {
		return
	}
	was := x.charged
	x.charged += n
	all := &l.m.leased
	all.Pins += n
	if was == 0 || x.charged == 0 {
		all.Objects += n
		all.Bytes += n * x.Size
	}
}

func (l *mapLease) credit(x *entry) {
	l.counted(x, -1)
	if l.account != nil {
		l.account.Credit(x.Size)
	}
}

// setAccount gives a lease an account in place of the one that it has, if any.
func (l *mapLease) setAccount(a tier.Account) {
	if a == nil {
		return
	}
	has := slices.Concat(l.pinned, l.reserved)
	for _, x := range has {
		l.credit(x)
	}
	l.account = a
	for _, x := range has {
		_ = l.charge(x, true) // it can't be refused
		l.counted(x, 1)
	}
}
