package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
)

const (
	// probeGet is what is read of a value at first when its bytes are wanted: objects of 16 KiB, with a head
	// of most sizes, need one round trip.
	probeGet = 20 << 10
	// batch is the most keys of a pipeline.
	batch = 256
)

// lookup is what the server has under one key.
type lookup struct {
	keys  keys
	entry entry
	// head is the beginning of the head's value, in memory of the lookup.
	head []byte
	// err is nil, errMissing, an errDamaged, an errForeign, or an error for the caller.
	err error
}

// inline returns the bytes of the object that were read with its head. Without a checksum it returns all
// bytes or none: nothing would show that two reads were of two values.
func (k *lookup) inline() []byte {
	if k.keys.head != k.keys.body || int64(len(k.head)) <= k.entry.offset {
		return nil
	}
	// A head that fills the probe may be the beginning of a longer value, of which the length was asked a
	// moment later.
	whole := int64(len(k.head)) == k.entry.offset+k.entry.object.Size && len(k.head) < probeGet
	if !k.entry.hasSum && !whole {
		return nil
	}
	// A server may say that the value is shorter than what it sent.
	return k.head[k.entry.offset:min(int64(len(k.head)), k.entry.offset+k.entry.object.Size)]
}

// probes lends memory for the beginnings of values.
var probes = sync.Pool{New: func() any { b := make([]byte, 0, probeGet); return &b }}

// lookUp describes objects, in the order of the keys. The heads are valid until release.
func (l *Level) lookUp(ctx context.Context, wanted []tier.Key, get bool) (found []lookup, release func()) {
	found = make([]lookup, len(wanted))
	probe := l.settings.Layout.probe(get)
	memory := make([]*[]byte, 0, len(wanted))
	release = func() {
		for _, b := range memory {
			probes.Put(b)
		}
	}
	heads := make([]*goredis.ZeroCopyStringCmd, len(wanted))
	lengths := make([]*goredis.IntCmd, len(wanted))
	pipe := l.client.Pipeline()
	for i, k := range wanted {
		found[i].keys, found[i].err = l.settings.Layout.keys(k)
		if found[i].err != nil {
			if k.Validate() == nil { // the layout has no such objects
				found[i].err = errMissing
			}
			continue
		}
		found[i].keys.head = l.settings.Prefix + found[i].keys.head
		found[i].keys.body = l.settings.Prefix + found[i].keys.body
		b := probes.Get().(*[]byte)
		memory = append(memory, b)
		heads[i] = getRange(ctx, found[i].keys.head, (*b)[:probe], 0)
		_ = pipe.Process(ctx, heads[i])
		lengths[i] = pipe.StrLen(ctx, found[i].keys.body)
	}
	l.exec(ctx, pipe, int64(len(wanted)*probe))
	for i, k := range wanted {
		if found[i].err == nil {
			found[i].read(ctx, l.settings.Layout, k, heads[i], lengths[i])
		}
	}
	l.lookUpLonger(ctx, wanted, found)
	return found, release
}

// read evaluates the answers of the server about one key.
func (k *lookup) read(ctx context.Context, layout Layout, key tier.Key, head *goredis.ZeroCopyStringCmd,
	length *goredis.IntCmd) {
	err := errors.Join(head.Err(), length.Err())
	switch {
	case isWrongType(head.Err()) || isWrongType(length.Err()):
		k.err = notOurs(layout, "the key has a value of another type")
	case err != nil:
		k.err = explain(ctx, err)
	case length.Val() < 0 || length.Val() > largest:
		k.err = notOurs(layout, fmt.Sprintf("the value has %d bytes, the most is %d", length.Val(), largest))
	default:
		k.head = head.Bytes()
		k.entry, k.err = layout.parse(key, k.head, length.Val())
	}
}

// lookUpLonger reads the heads that are longer than the probe.
func (l *Level) lookUpLonger(ctx context.Context, wanted []tier.Key, found []lookup) {
	heads := make(map[int]*goredis.ZeroCopyStringCmd)
	lengths := make(map[int]*goredis.IntCmd)
	pipe := l.client.Pipeline()
	var bytes int64
	for i := range found {
		var longer errLongerHead
		if errors.As(found[i].err, &longer) {
			heads[i] = getRange(ctx, found[i].keys.head, make([]byte, longer), 0)
			_ = pipe.Process(ctx, heads[i])
			lengths[i] = pipe.StrLen(ctx, found[i].keys.body)
			bytes += int64(longer)
		}
	}
	if len(heads) == 0 {
		return
	}
	l.exec(ctx, pipe, bytes)
	for i := range heads {
		found[i].read(ctx, l.settings.Layout, wanted[i], heads[i], lengths[i])
		var longer errLongerHead
		if errors.As(found[i].err, &longer) {
			found[i].err = damaged("the head changed while it was read")
		}
	}
}

// getWhole reads a value of size bytes into memory that has room for overhang more. A longer value shows by
// its extra byte, so one command tells the length and the bytes of the same value. Only layouts without a
// checksum need that; their bytes begin at 0.
func getWhole(ctx context.Context, key string, into []byte, size int64) *goredis.ZeroCopyStringCmd {
	return goredis.NewZeroCopyStringCmd(ctx, into, "getrange", key, 0, size)
}

// overhang is one byte of a longer value and one that makes room for the end of the server's answer, which
// the client then reads together with the bytes.
const overhang = 2

// getRange reads a value from an offset on, straight into memory: as much as there is room for.
func getRange(ctx context.Context, key string, into []byte, offset int64) *goredis.ZeroCopyStringCmd {
	return goredis.NewZeroCopyStringCmd(ctx, into, "getrange", key, offset, offset+int64(len(into))-1)
}

// exec runs a pipeline that moves so many bytes. Each command has its own error.
func (l *Level) exec(ctx context.Context, pipe goredis.Pipeliner, bytes int64) {
	if pipe.Len() == 0 {
		return
	}
	ctx, cancel := l.limited(ctx, bytes)
	defer cancel()
	cmds, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(c goredis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range cmds { // the client gave up before it sent anything
		c.SetErr(err)
	}
}

// pieces calls fn with ranges of a batch until the context ends. It returns the first index that was not
// done, and why.
func (l *Level) pieces(ctx context.Context, n int, fn func(from, to int)) (int, error) {
	for from := 0; from < n; from += batch {
		leave, err := l.enter(ctx)
		if err != nil {
			return from, err
		}
		func() {
			defer leave()
			fn(from, min(from+batch, n))
		}()
	}
	return n, nil
}
