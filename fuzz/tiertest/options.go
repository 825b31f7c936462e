package tiertest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Options describe the level that is tested, and how it is reached behind its back. Only Open is needed. What
// a level has no hook for is not tested, and the log of the test names it.
type Options struct {
	// Open opens a new level without objects, which shares none with other levels of the test. capacity is
	// its most bytes; 0 is no limit, or so much that 64 MiB have room. Levels are closed by the test; Open
	// removes whatever else it made, with t.Cleanup.
	Open func(t testing.TB, capacity int64) tier.Level
	// Reopen opens what a closed level has left, with the same capacity. A level that keeps nothing has none.
	Reopen func(t testing.TB, closed tier.Level) tier.Level
	// Kill opens what a level leaves when its process is killed, now, which is not told to
	// the level. It needs no process: it may let go of the level's files and locks, and open them anew. The
	// test does not use, nor close, the old level any more.
	Kill func(t testing.TB, l tier.Level) tier.Level
	// Damage changes a byte of an object where the level keeps it.
	Damage func(t testing.TB, l tier.Level, k tier.Key)
	// At returns n bytes at an offset of the segment of a tier.MemoryLevel, by a mapping of its own. It is
	// for [Memory].
	At func(t testing.TB, l tier.Level, offset uint64, n int64) []byte
	// Now is the clock that ends leases, time.Now if nil, and Advance puts it forward. They are for [Memory],
	// which waits for the clock if Advance is nil.
	Now     func() time.Time
	Advance func(d time.Duration)

	// Capacity is that of the levels whose objects are evicted, 1 MiB if 0. Objects have up to
	// a sixteenth of it, and what the level adds to one should be less than a thirty-second.
	Capacity int64
	// Unlimited levels have no capacity of their own, as a server that evicts by itself.
	Unlimited bool
	// Histories is the number of random histories of several goroutines, 6 if 0.
	Histories int
	// Without names tests that are left out, such as "Get is a use" or, as the go command prints it,
	// "Get_is_a_use". Each is a promise of package tier that the level does not keep.
	Without []string

	patience time.Duration // the longest wait for what has to happen, 2 minutes if 0
}

// Level tests everything that package tier promises about a tier.Level, in sub-tests. It must not run
// beside other tests, since it counts goroutines.
func Level(t *testing.T, o Options) {
	t.Helper()
	runAll(t, o, levelChecks)
}

// Memory tests what package tier promises about a tier.MemoryLevel beside what [Level] tests:
// leases, and places in the segment.
func Memory(t *testing.T, o Options) {
	t.Helper()
	runAll(t, o, memoryChecks)
}

// A check is a sub-test.
type check struct {
	name  string
	needs need
	slow  bool // random, and without use for planted defects of one call
	run   func(b *bed)
}

func (c *check) isNamed(name string) bool { return c.name == strings.ReplaceAll(name, "_", " ") }

// need is what a check can't do without.
type need int

const (
	aCapacity need = 1 << iota
	aReopen
	aKill
	aDamage
	anAt
)

func (o *Options) lacks(n need) string {
	switch {
	case n&aCapacity != 0 && o.Unlimited:
		return "the level has no capacity"
	case n&aReopen != 0 && o.Reopen == nil:
		return "the option Reopen is not set"
	case n&aKill != 0 && o.Kill == nil:
		return "the option Kill is not set"
	case n&aDamage != 0 && o.Damage == nil:
		return "the option Damage is not set"
	case n&anAt != 0 && o.At == nil:
		return "the option At is not set"
	}
	return ""
}

func (o *Options) setDefaults() {
	if o.Capacity == 0 {
		o.Capacity = 1 << 20
	}
	if o.Histories == 0 {
		o.Histories = 6
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.patience == 0 {
		o.patience = 2 * time.Minute
	}
}

// validate fails the test for options that can't be meant.
func (o *Options) validate(t testing.TB) {
	t.Helper()
	if o.Open == nil {
		t.Fatalf("tiertest: the option Open is not set")
	}
	if o.Capacity < 0 || o.Histories < 0 || o.Capacity > 0 && o.Capacity < 1<<10 {
		t.Fatalf("tiertest: the options have a Capacity of %d, which is below 1024, or %d Histories", o.Capacity,
			o.Histories)
	}
	if o.Advance != nil && o.Now == nil {
		t.Fatalf("tiertest: the option Advance is set, and Now is not")
	}
	for _, name := range o.Without {
		known := slices.ContainsFunc(slices.Concat(levelChecks, memoryChecks), func(c check) bool {
			return c.isNamed(name)
		})
		if !known {
			t.Fatalf("tiertest: the option Without: there is no test %q", name)
		}
	}
}

func runAll(t *testing.T, o Options, checks []check) {
	t.Helper()
	o.validate(t)
	o.setDefaults()
	for _, c := range checks {
		if slices.ContainsFunc(o.Without, c.isNamed) {
			t.Logf("left out: %s", c.name)
			continue
		}
		if why := o.lacks(c.needs); why != "" {
			t.Logf("left out: %s: %s", c.name, why)
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.run(&bed{TB: t, o: &o}) })
	}
}
