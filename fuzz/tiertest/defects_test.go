package tiertest

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
