package memory

import (
	"errors"
	"fmt"
	"maps"
)

// checkLeases compares leases with their records and with what the store keeps for them.
func (l *Level) checkLeases() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("memory: "+format, args...)) }
	open, items, untils, writes := 0, 0, 0, 0
	charged := leased{holders: map[uint32]int{}}
	for id, x := range l.leases {
		if x.id != id || x.l != l {
			bad("lease %q has the key %q", x.id, id)
		}
		r, ok := l.table.LeaseAt(x.place)
		switch {
		case x.ended:
			if x.size() == 0 {
				bad("lease %q has ended, and nothing is left of it", id)
			}
		case !ok || r != x.record || r.ID != id || r.Serial > l.serial:
			bad("lease %q has the record %+v, want %+v", id, r, x.record)
		default:
			open++
		}
		bytes := int64(0)
		for it := range x.all() {
			items++
			bytes += it.object.Size
			if x.account != nil {
				charged.add(it)
			}
			k := it.object.Key
			r, ok := l.table.ItemAt(it.place)
			if !ok || r.Serial != x.record.Serial || r.Record.ID != it.o.Handle().ID || r.Reserved != (it.res != nil) ||
				(x.pinned[k] == it) == r.Reserved || (x.reserved[k] == it) != r.Reserved {
				bad("object %v of lease %q has the record %+v", k, id, r)
			}
		}
		if bytes != x.bytes {
			bad("lease %q has %d bytes, counted were %d", id, bytes, x.bytes)
		}
		if x.in != nil && (x.at >= len(*x.in) || (*x.in)[x.at] != x) {
			bad("lease %q is not where it waits for its time", id)
		}
		want := &l.untils
		switch {
		case x.ended, x.until.IsZero() && !x.expired:
			want = nil
		case x.expired:
			writes++
			want = &l.writes
		default:
			untils++
		}
		empty := x.expired && !x.ended && len(x.reserved) == 0
		forgotten := x.expired && len(x.pinned) > 0 && !x.inSweeps
		if x.in != want || empty || forgotten {
			bad("lease %q ends at %v, expired: %v, with %d pins and %d reservations", id, x.until, x.expired, len(x.pinned), len(x.reserved))
		}
	}
	free, freeItems := l.table.Free()
	if o := l.table.Options(); free+open != o.Leases || freeItems+items != o.Items || untils != len(l.untils) || writes != len(l.writes) {
		bad("%d leases and %d free records of %d, %d objects and %d of %d; %d and %d leases wait for their time, counted were %d and %d",
			open, free, o.Leases, items, freeItems, o.Items, len(l.untils), len(l.writes), untils, writes)
	}
	same := charged.bytes == l.leased.bytes && charged.pins == l.leased.pins
	if !same || !maps.Equal(charged.holders, l.leased.holders) {
		bad("leases with an account have %+v, counted were %+v", charged, l.leased)
	}
	for _, h := range l.store.Holders() {
		if h.Kind != "request" {
			continue
		}
		if x := l.leases[trimLease(h.ID)]; x != nil && len(h.Keys) != len(x.pinned) {
			bad("lease %q has %d pins, and the store %d", x.id, len(x.pinned), len(h.Keys))
		}
	}
	return errors.Join(errs...)
}

// trimLease returns the id of the lease of a request, "" if it is none's.
func trimLease(request string) string {
	if len(request) > len(leasePrefix) && request[:len(leasePrefix)] == leasePrefix {
		return request[len(leasePrefix):]
	}
	return ""
}
