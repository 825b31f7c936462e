package tier

import (
	"fmt"
	"io/fs"
	"log/slog"
	"time"
)

// Write is when a level gets what is stored.
type Write int

const (
	// Back writes in the background, after the memory level has the object. Pending writes survive a
	// restart of the process, as the memory level does.
	Back Write = iota
	// Through writes before [Store.Put] returns. A Commit of a lease never waits: for it
	// Through is Back.
	Through
	// Around writes nothing. The level has what others put there, and what is read from slower
	// levels.
	Around
)

// Lower is a level below memory.
type Lower struct {
	Level Level
	Write Write
	// PromoteAfter is how often an object of a slower level has to be asked for within a while before this
	// level gets a copy. 0 is 2, so that what is read once is not copied up; a negative
	// number is never.
	PromoteAfter int
	// Timeout is the most time of one call, with the bytes that it moves: 1 MiB or a single object. Then
	// the context of the call ends. A level whose call returns by that is away: it is asked again in the
	// background only, until it answers. One whose call does not return is not. 0 is 10 seconds.
	Timeout time.Duration
}

// Options describe a Store. Memory is needed; zero values of the rest work.
type Options struct {
	// Memory is the fastest level. Only one Store at a time may use it.
	Memory MemoryLevel
	// Lower are the levels below, fastest first. At most 16.
	Lower []Lower
	// PromoteAfter is how often Get has to read an object from below within a while before it is
	// fetched into memory. 0 is 2, and a negative number is never. What Pin and Prefetch ask
	// for is always fetched.
	PromoteAfter int
	// MaxCalls is the most calls to lower levels at a time, in the background: of each level at most its
	// share of reads, and at most half of all are writes, so that a level that hangs leaves workers to the
	// others. Get and Put, whose callers wait, may have again as many calls to each level. 0 is 8; the least
	// is 2.
	MaxCalls int
	// MaxBytesInFlight is the most bytes that are moved in the background at a time. A
	// larger object is moved alone. 0 is 256 MiB.
	MaxBytesInFlight int64
	// MaxFetches is the most objects that are on the way into memory, or wait for that; beyond,
	// Pin answers ErrFull. 0 is 65536.
	MaxFetches int
	// MaxBacklog is the most bytes of pending writes, of at most half as many objects as the memory level can
	// have. They are pinned in memory. What is stored beyond is written by Put itself; if its level is
	// away, it stays in memory alone. What is committed beyond is not pinned, and written if memory still has
	// it when it is its turn. 0 is half of the capacity of the memory level.
	MaxBacklog int64
	// Quotas are the most bytes of a tenant on the way up, and again of its pending writes; Quota that of a
	// tenant that is not in it. 0 is no limit of its own. The share of memory is the matter of the memory level.
	Quotas map[string]int64
	Quota  int64
	// NegativeTTL is how long a lookup that found nothing is remembered, from its beginning. What another process
	// puts into a shared level meanwhile is a miss that long, or until the lookup ends. 0 is 1 second.
	NegativeTTL time.Duration
	// PromotedFor is how long an object that was fetched stays pinned for who asked for it, and how long a
	// lease has interest in an object after a Pin that was answered with ErrPending. 0 is 10 seconds.
	PromotedFor time.Duration
	// Events, if not nil, is called for what happens, by one goroutine, in order. It may
	// call the Store, but not Close. Events that come faster than it takes them are
	// dropped, and counted.
	Events func(Event)
	// Work, if not nil, is called after each call of a lower level in the background, by the goroutine that made the
	// call, which waits for it. It must not call the Store.
	Work func(Work)
	// Logger gets levels that go away and come back, and what could not be written. nil is
	// silent.
	Logger *slog.Logger
}

const (
	maxLower           = 16
	defaultPromote     = 2
	defaultTimeout     = 10 * time.Second
	defaultCalls       = 8
	defaultInFlight    = 256 << 20
	defaultFetches     = 1 << 16
	defaultBacklog     = 1 << 30 // of a memory level without a capacity
	defaultNegative    = time.Second
	defaultPromotedFor = 10 * time.Second
)

// Validate reports what is wrong with options, as an fs.ErrInvalid.
func (o Options) Validate() error {
	if o.Memory == nil {
		return fmt.Errorf("tier: a store needs a memory level: set Options.Memory: %w", fs.ErrInvalid)
	}
	if len(o.Lower) > maxLower {
		return fmt.Errorf("tier: %d lower levels, the most is %d: %w", len(o.Lower), maxLower, fs.ErrInvalid)
	}
	names := map[string]bool{o.Memory.Name(): true}
	for i, l := range o.Lower {
		switch {
		case l.Level == nil:
			return fmt.Errorf("tier: lower level %d is nil: %w", i, fs.ErrInvalid)
		case names[l.Level.Name()]:
			return fmt.Errorf("tier: two levels have the name %q: %w", l.Level.Name(), fs.ErrInvalid)
		case l.Write < Back || l.Write > Around:
			return fmt.Errorf("tier: level %q has the unknown write policy %d: %w",
				l.Level.Name(), l.Write, fs.ErrInvalid)
		case l.Timeout < 0:
			return fmt.Errorf("tier: level %q has the time limit %v: %w", l.Level.Name(), l.Timeout, fs.ErrInvalid)
		}
		names[l.Level.Name()] = true
	}
	if o.MaxCalls < 0 || o.MaxCalls == 1 {
		return fmt.Errorf("tier: MaxCalls is %d, the least is 2: %w", o.MaxCalls, fs.ErrInvalid)
	}
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"MaxBytesInFlight", o.MaxBytesInFlight}, {"MaxFetches", int64(o.MaxFetches)}, {"MaxBacklog", o.MaxBacklog},
		{"Quota", o.Quota}, {"NegativeTTL", int64(o.NegativeTTL)}, {"PromotedFor", int64(o.PromotedFor)},
	} {
		if limit.value < 0 {
			return fmt.Errorf("tier: %s is %d: %w", limit.name, limit.value, fs.ErrInvalid)
		}
	}
	for tenant, quota := range o.Quotas {
		if quota < 0 {
			return fmt.Errorf("tier: the quota of tenant %q is %d: %w", tenant, quota, fs.ErrInvalid)
		}
	}
	return nil
}

// withDefaults returns options without zero values that stand for others.
func (o Options) withDefaults() Options {
	orElse(&o.PromoteAfter, defaultPromote)
	orElse(&o.MaxCalls, defaultCalls)
	orElse(&o.MaxBytesInFlight, defaultInFlight)
	orElse(&o.MaxFetches, defaultFetches)
	orElse(&o.MaxBacklog, o.Memory.Usage().Capacity/2)
	orElse(&o.MaxBacklog, defaultBacklog)
	orElse(&o.NegativeTTL, defaultNegative)
	orElse(&o.PromotedFor, defaultPromotedFor)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	lower := make([]Lower, len(o.Lower))
	for i, l := range o.Lower {
		orElse(&l.PromoteAfter, defaultPromote)
		orElse(&l.Timeout, defaultTimeout)
		lower[i] = l
	}
	o.Lower = lower
	return o
}

// orElse sets a value that is not set.
func orElse[T comparable](value *T, instead T) {
	var zero T
	if *value == zero {
		*value = instead
	}
}
