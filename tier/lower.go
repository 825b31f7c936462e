package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/internal/loglimit"
)

// lower is a level below memory. Its calls of Stat, Get, Put and Delete have the time limit of the level, are not
// made while the level is away, and tell its health what they learned. Store.List calls the level itself.
type lower struct {
	Lower
	index    int
	name     string
	health   *health
	report   *report
	slots    chan struct{}          // one for each call of Store.Get and Store.Put
	refusals [causes]loglimit.Limit // of the lines about objects that the level did not take
}

// newLower makes a level that is not away. changed is called when it may be written to again.
func newLower(l Lower, index int, r *report, o Options, t *lifetime, changed func()) *lower {
	low := &lower{Lower: l, index: index, name: l.Level.Name(), report: r, slots: make(chan struct{}, o.MaxCalls)}
	low.health = &health{
		level: l.Level, timeout: l.Timeout, logger: o.Logger, life: t, changed: changed,
		event:   func(k kind, err error) { r.event(1+index, k, Key{}, 0, err) },
		awayLog: loglimit.Limit{Burst: 5}, backLog: loglimit.Limit{Burst: 5},
	}
	return low
}

// bit is the level in a set of levels.
func (l *lower) bit() levelSet { return 1 << l.index }

// stat asks the level about keys. ctxErr is the error of the caller's context, if that ended.
func (l *lower) stat(ctx context.Context, keys []Key) (found []Found, ctxErr error) {
	if l.health.isAway() {
		l.report.count(1+l.index, kindMiss, ErrUnavailable, int64(len(keys)), 0)
		return repeat(len(keys), Found{Err: l.health.errAway()}), nil
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	found = l.Level.Stat(limited, keys)
	for i := range found {
		found[i].Err = l.health.assess(ctx, found[i].Err)
		if found[i].Err == nil && found[i].Object.Key != keys[i] {
			found[i].Err = l.errOtherObject(keys[i], found[i].Object.Key)
		}
		if err := found[i].Err; err != nil {
			l.report.count(1+l.index, kindMiss, err, 1, 0)
		}
	}
	return found, ctx.Err()
}

// get reads from the level. isCallers reports whether the error of an element is that of its caller's Into,
// which says nothing about the level.
func (l *lower) get(ctx context.Context, gets []Get, isCallers func(i int) bool) {
	if l.health.isAway() {
		failGets(gets, l.health.errAway())
		l.report.count(1+l.index, kindMiss, ErrUnavailable, int64(len(gets)), 0)
		return
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	l.Level.Get(limited, gets)
	for i := range gets {
		g := &gets[i]
		if !isCallers(i) {
			g.Err = l.health.assess(ctx, g.Err)
		}
		if g.Err == nil && g.Object.Key != g.Key {
			g.Err = l.errOtherObject(g.Key, g.Object.Key)
		}
		switch {
		case g.Err == nil:
			l.report.count(1+l.index, kindHit, nil, 1, g.Object.Size)
		case errors.Is(g.Err, ErrCorrupt):
			l.report.event(1+l.index, kindMiss, g.Key, 0, g.Err)
		default:
			l.report.count(1+l.index, kindMiss, g.Err, 1, 0)
		}
	}
}

// errOtherObject is the error of a level that mixes its objects up: nothing of its answer can be believed.
func (l *lower) errOtherObject(asked, answered Key) error {
	return fmt.Errorf("tier: level %s answered for object %v with %v: %w", l.name, asked, answered, ErrCorrupt)
}

// put writes to the level. It counts nothing: whether an element that failed is tried again is its caller's
// matter.
func (l *lower) put(ctx context.Context, puts []Put) {
	if l.health.isAway() {
		failPuts(puts, l.health.errAway())
		return
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	l.Level.Put(limited, puts)
	for i := range puts {
		puts[i].Err = l.health.assess(ctx, puts[i].Err)
	}
}

// delete deletes from the level.
func (l *lower) delete(ctx context.Context, keys []Key) []error {
	if l.health.isAway() {
		return repeat(len(keys), l.health.errAway())
	}
	limited, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	errs := make([]error, len(keys))
	for i, err := range l.Level.Delete(limited, keys) {
		errs[i] = l.health.assess(ctx, err)
	}
	return errs
}

// written counts that the level took an object, or will not get it: err is why.
func (l *lower) written(o Object, err error) {
	k := kindWritten
	if err != nil {
		k = kindNotWritten
	}
	l.report.event(1+l.index, k, o.Key, o.Size, err)
}

// refused counts and logs that the level will not get an object. A level that is full refuses every one: so
// there is a line a minute for each cause.
func (l *lower) refused(o Object, err error) {
	l.written(o, err)
	l.refusals[causeOf(err)].Warn(l.health.logger, "tier: an object was not written",
		"level", l.name, "object", o.Key.String(), "error", err)
}

// levelSet is a set of lower levels: bit i is Options.Lower[i].
type levelSet uint32

// has reports whether a level is in the set.
func (s levelSet) has(l *lower) bool { return s&l.bit() != 0 }
