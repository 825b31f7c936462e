package tiertest

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// A defect is one that a level could have, and the test that has to notice it.
type defect struct {
	name, check string
	plant       func(b *broken)
}

// TestPlantedDefects: each defect is noticed by the test that is there for it, and each test is
// there for a defect.
func TestPlantedDefects(t *testing.T) {
	quietRapid(t)
	checks := slices.Concat(levelChecks, memoryChecks)
	noticed := map[string]bool{}
	for _, d := range slices.Concat(levelDefects, leaseDefects) {
		require.NotContains(t, noticed, d.name, "a name twice")
		noticed[d.name] = true
		t.Run(d.name, func(t *testing.T) {
			i := slices.IndexFunc(checks, func(c check) bool { return c.name == d.check })
			require.GreaterOrEqual(t, i, 0, "there is no test %q", d.check)
			report := failureOf(t, checks[i], brokenOptions(d.plant))
			require.NotEmpty(t, report, "%s does not notice it", d.check)
			t.Log(strings.ReplaceAll(report, "\n", " "))
		})
		noticed["check "+d.check] = true
	}
	for _, c := range checks {
		require.True(t, c.slow || noticed["check "+c.name], "no defect is planted for %q", c.name)
	}
	t.Logf("%d defects, %d tests", len(levelDefects)+len(leaseDefects), len(checks))
}

// quietRapid keeps rapid from writing files for what has to fail, and from minimizing it for long.
func quietRapid(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "100ms"} {
		f := flag.Lookup(name)
		require.NotNil(t, f, name)
		old := f.Value.String()
		require.NoError(t, flag.Set(name, value))
		t.Cleanup(func() { require.NoError(t, flag.Set(name, old)) })
	}
}

// TestNoFalseAlarm: a level without a defect passes in the same surroundings.
func TestNoFalseAlarm(t *testing.T) {
	o := brokenOptions(func(*broken) {})
	o.patience = 0
	for _, c := range slices.Concat(levelChecks, memoryChecks) {
		if !c.slow {
			require.Empty(t, failureOf(t, c, o), c.name)
		}
	}
}

// TestUnknownCounts: a level that does not count passes.
func TestUnknownCounts(t *testing.T) {
	o := brokenOptions(counted(func(u *tier.Usage) {
		*u = tier.Usage{Objects: -1, Bytes: -1, Held: -1, Evicted: -1, Corrupt: -1}
	}))
	o.patience, o.Unlimited = 0, true
	for _, c := range levelChecks {
		if !c.slow && o.lacks(c.needs) == "" {
			require.Empty(t, failureOf(t, c, o), c.name)
		}
	}
}

// TestOptions: what can't be meant is refused, and what a level lacks is left out.
func TestOptions(t *testing.T) {
	good := brokenOptions(func(*broken) {})
	for want, change := range map[string]func(o *Options){
		"Open is not set":                   func(o *Options) { o.Open = nil },
		"a Capacity of -1":                  func(o *Options) { o.Capacity = -1 },
		"a Capacity of 100, which is below": func(o *Options) { o.Capacity = 100 },
		"-3 Histories":                      func(o *Options) { o.Histories = -3 },
		"Now is not":                        func(o *Options) { o.Now = nil },
		`there is no test "eviction"`:       func(o *Options) { o.Without = []string{"capacity", "eviction"} },
	} {
		o := good
		change(&o)
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			o.validate(r)
		}()
		<-done
		require.Contains(t, r.report, want)
	}
	o := good
	o.Without = []string{"Get is a use", "Get_is_a_use", "pins"}
	o.validate(t)

	o = Options{Unlimited: true}
	for _, n := range []need{aCapacity, aReopen, aKill, aDamage, anAt, aKill | aCapacity} {
		require.NotEmpty(t, o.lacks(n))
		require.Empty(t, good.lacks(n))
	}
	require.Empty(t, o.lacks(0))
	o = good
	o.Open = func(testing.TB, int64) tier.Level { return NewFault(NewMap(MapOptions{})) }
	require.Contains(t, failureOf(t, memoryChecks[0], o), "is no tier.MemoryLevel")
	o.Open = func(testing.TB, int64) tier.Level { return nil }
	require.Contains(t, failureOf(t, levelChecks[0], o), "the level is nil")
}
