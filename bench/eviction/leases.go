package main

import "github.com/ringcache/ringcache/bench/internal/policy"

// leases hold the items of the last requests, of one item each.
type leases struct {
	inFlight int
	abort    int // one request of so many is never seen to end; 0: none

	begun int
	open  []*policy.Item
	held  []int32 // by the item's id
	sum   int64
}

func newLeases(inFlight, abort int) leases { return leases{inFlight: inFlight, abort: abort} }

// begin starts a request, which may end an older one. Its item is nil if it is
// not in the cache: then it travels with the request, and nothing is held.
func (l *leases) begin(it *policy.Item) {
	l.hold(it, 1)
	if l.begun++; l.abort > 0 && l.begun%l.abort == 0 {
		return
	}
	if l.open = append(l.open, it); len(l.open) > l.inFlight {
		l.hold(l.open[0], -1)
		l.open = l.open[1:]
	}
}

func (l *leases) hold(it *policy.Item, n int32) {
	if it == nil {
		return
	}
	if more := int(it.ID) + 1 - len(l.held); more > 0 {
		l.held = append(l.held, make([]int32, more)...)
	}
	if l.held[it.ID] == 0 {
		l.sum += it.Size
	}
	if l.held[it.ID] += n; l.held[it.ID] == 0 {
		l.sum -= it.Size
	}
}

func (l *leases) leased(it *policy.Item) bool { return int(it.ID) < len(l.held) && l.held[it.ID] > 0 }

// bytes are those of the items that are held.
func (l *leases) bytes() int64 { return l.sum }
