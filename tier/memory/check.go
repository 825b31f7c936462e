package memory

import (
	"errors"
	"fmt"
)

// checkLeases compares leases with their records and with what the store keeps for them.
func (l *Level) checkLeases() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("memory: "+format, args...)) }
	items, timed := 0, 0
	for id, x := range l.leases {
		if x.id != id || x.ended || x.l != l {
			bad("lease %q is filed as %q, ended: %v", x.id, id, x.ended)
		}
		r, ok := l.table.LeaseAt(x.place)
		if !ok || r != x.record || r.ID != id || r.Serial > l.serial {
			bad("lease %q has the record %+v, want %+v", id, r, x.record)
		}
		bytes, reserved := int64(0), 0
		for k, it := range x.items {
			items++
			bytes += it.object.Size
			if it.res != nil {
				reserved++
			}
			r, ok := l.table.ItemAt(it.place)
			if !ok || r.Serial != x.record.Serial || r.Record.ID != it.o.Handle().ID || r.Reserved != (it.res != nil) || it.object.Key != k {
				bad("object %v of lease %q has the record %+v", k, id, r)
			}
		}
		if bytes != x.bytes || reserved != x.reserved {
			bad("lease %q has %d bytes and %d reservations, counted were %d and %d", id, bytes, reserved, x.bytes, x.reserved)
		}
		if x.timedAt >= 0 {
			timed++
			if x.timedAt >= len(l.timed) || l.timed[x.timedAt] != x || x.until.IsZero() {
				bad("lease %q is not in its place among those that end by time", id)
			}
		}
		if x.until.IsZero() != (x.timedAt < 0) && !x.lapsed || x.lapsed && x.reserved == 0 {
			bad("lease %q ends at %v, lapsed: %v, with %d reservations", id, x.until, x.lapsed, x.reserved)
		}
	}
	free, freeItems := l.table.Free()
	if o := l.table.Options(); free+len(l.leases) != o.Leases || freeItems+items != o.Items || timed != len(l.timed) {
		bad("%d leases and %d free records of %d, %d objects and %d of %d, %d of %d leases end by time",
			len(l.leases), free, o.Leases, items, freeItems, o.Items, timed, len(l.timed))
	}
	for _, h := range l.store.Holders() {
		if h.Kind != "request" {
			continue
		}
		if x := l.leases[trimLease(h.ID)]; x != nil && len(h.Keys) != len(x.items)-x.reserved {
			bad("lease %q has %d pins, and the store %d", x.id, len(x.items)-x.reserved, len(h.Keys))
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
