package daemontest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/encoder"
)

func pick[T any](l *liar, list ...T) T { return list[l.rng.IntN(len(list))] }

func (l *liar) name() string {
	if l.rng.IntN(3) > 0 {
		return fmt.Sprint("lie-", l.rng.IntN(500))
	}
	return pick(l, "", "\x00", "a\nb", strings.Repeat("n", 1024), strings.Repeat("n", 1025), "../../etc", "object-1", strings.Repeat("é", 500))
}

func (l *liar) names() []string {
	names := make([]string, l.rng.IntN(20))
	for i := range names {
		names[i] = l.name()
		if i > 0 && l.rng.IntN(5) == 0 {
			names[i] = names[i-1]
		}
	}
	if l.rng.IntN(50) == 0 {
		return l.manyNames()
	}
	return names
}

func (l *liar) manyNames() []string {
	names := make([]string, wire.MaxNames)
	for i := range names {
		names[i] = fmt.Sprint("lie-", i)
	}
	return names
}

func (l *liar) space() string {
	return pick(l, "lies", "lies", "lies", "more lies", "", "\x00", strings.Repeat("s", 256), fmt.Sprint("space ", l.rng.Uint32()))
}

func (l *liar) lease() string {
	return pick(l, fmt.Sprint("lie ", l.rng.IntN(30)), fmt.Sprint("lie ", l.rng.Uint32()), "", "ringcache store", "a/b", "\x00", strings.Repeat("l", 128), strings.Repeat("l", 129))
}

func (l *liar) object() wire.Object {
	name := l.name()
	return wire.Object{
		Name: name, Size: pick[int64](l, 0, 1, 1000, 100_000, 1<<20, 1<<30, 1<<40, math.MaxInt64), Note: make([]byte, pick(l, 0, 10, 4096, 4097)),
		Parent: pick(l, "", "", name, l.name()), Tenant: pick(l, "", "", fmt.Sprint("tenant ", l.rng.Uint32()), strings.Repeat("t", 256)),
		Cost: time.Duration(pick[int64](l, 0, 1, math.MaxInt64)),
	}
}

// request draws one of which most is right.
func (l *liar) request() *wire.Request {
	q := &wire.Request{ID: pick[uint64](l, 2, 3, 1, 7, math.MaxUint64), Op: pick(l, wire.Pin, wire.Pin, wire.Get, wire.Reserve, wire.Reserve, wire.Commit, wire.Abort, wire.Release, wire.Stat)}
	seconds := pick[uint32](l, 0, 1, 1, 100, math.MaxUint32)
	objects := make([]wire.Object, 1+l.rng.IntN(6))
	for i := range objects {
		objects[i] = l.object()
	}
	switch q.Op {
	case wire.Reserve:
		q.Lease, q.Space, q.Seconds, q.Objects = l.lease(), l.space(), seconds, objects
	case wire.Release:
		if l.rng.IntN(2) == 0 {
			q.Leases = []string{l.lease(), l.lease()}
			break
		}
		fallthrough
	case wire.Pin, wire.Get, wire.Commit, wire.Abort:
		q.Lease, q.Space, q.Names = l.lease(), l.space(), l.names()
		if q.Op == wire.Pin || q.Op == wire.Commit {
			q.Seconds, q.Keep, q.Prefix = seconds, q.Op == wire.Commit, q.Op == wire.Pin && l.rng.IntN(2) == 0
		}
		if q.Op == wire.Pin && l.rng.IntN(4) == 0 {
			q.Trace = pick(l, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-", strings.Repeat("t", 1000))
		}
	case wire.Stat:
		q.List = l.rng.IntN(20) == 0
		if l.rng.IntN(2) == 0 {
			q.Space, q.Names = l.space(), l.names()
		}
	}
	if l.rng.IntN(100) == 0 {
		q.ID = 0 // costs the connection
	}
	if l.rng.IntN(4) == 0 { // and one thing that does not belong there
		switch l.rng.IntN(11) {
		case 0:
			q.Op = pick(l, wire.Hello, wire.Op("?"), wire.Op(""), wire.Stat, wire.Commit)
		case 1:
			q.Session = pick(l, l.o.Victim, "x", strings.Repeat("s", 65))
		case 2:
			q.Version = int(l.rng.Int32())
		case 3:
			q.Fingerprint = &encoder.Fingerprint{Model: l.name(), Ranks: int(l.rng.Int32()), Rank: int(l.rng.Int32())}
		case 4:
			q.Objects = objects
		case 5:
			q.Leases = l.names()
		case 6:
			q.Lease = ""
		case 7:
			q.Space = ""
		case 8:
			q.Client = l.name()
		case 9:
			q.Features = l.names()
		case 10: // all of it goes
			q = &wire.Request{ID: 9, Op: wire.Clear, Space: pick(l, "lies", "more lies", "")}
		}
	}
	return q
}
