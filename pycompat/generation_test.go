package pycompat_test

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

func lookup(t *testing.T, v string) *pycompat.Generation {
	t.Helper()
	g, err := pycompat.Lookup(v)
	require.NoError(t, err)
	return g
}

// TestTableAgreesWithMeasuredGroups: the golden files are grouped by releases
// that behaved alike, so what is in the table must not differ inside a group.
func TestTableAgreesWithMeasuredGroups(t *testing.T) {
	same := map[string]func(a, b *pycompat.Generation) bool{
		"ring_traces": func(a, b *pycompat.Generation) bool {
			return a.DataOffset == b.DataOffset && a.IDsRestart == b.IDsRestart
		},
		"storage_traces": func(a, b *pycompat.Generation) bool {
			return a.Counting == b.Counting && a.Signed == b.Signed
		},
		"ring_images": func(a, b *pycompat.Generation) bool {
			return a.DataOffset == b.DataOffset && a.Counting == b.Counting && a.IDsRestart == b.IDsRestart
		},
		"shm_cache": func(a, b *pycompat.Generation) bool { return a.SameWire(b) },
		"serde":     func(a, b *pycompat.Generation) bool { return a.ItemForm == b.ItemForm },
		"requests":  func(a, b *pycompat.Generation) bool { return a.FeatureHash == b.FeatureHash },
	}
	for section, same := range same {
		n := 0
		for _, f := range goldentest.Files(t, section) {
			first := lookup(t, f.Releases[0])
			for _, v := range f.Releases {
				require.True(t, same(first, lookup(t, v)), "%s: %s and %s", f.Name, v, f.Releases[0])
				n++
			}
		}
		require.GreaterOrEqual(t, n, 14, section)
	}
}

func TestPeerClasses(t *testing.T) {
	classes := [][]string{
		{"0.11.0", "0.11.1", "0.11.2"}, {"0.12.0"}, {"0.13.0", "0.14.0", "0.14.1", "0.15.0", "0.15.1"},
		{"0.16.0", "0.20.2", "0.27.1", "0.29.0", "0.30.0", "0.31.0"}, {"0.32.0", "0.33.0"},
	}
	for i, a := range classes {
		for j, b := range classes {
			for _, x := range a {
				for _, y := range b {
					require.Equal(t, i == j, lookup(t, x).SameWire(lookup(t, y)), "%s and %s", x, y)
				}
			}
		}
	}
}

func TestLookup(t *testing.T) {
	for in, want := range map[string]string{
		"0.33.0": "0.33.0", "v0.32.0": "0.32.0", "0.32.0+cpu": "0.32.0", "0.11.2.post2": "0.11.2",
	} {
		require.Equal(t, want, lookup(t, in).Version)
	}
	for _, in := range []string{"", "0.34.0", "0.33.1", "1.0.0", "0.10.2", "0.33.0rc1", "0.33.0.dev5", "0.33", "0.33.0.postx", "newest"} {
		t.Run("unknown "+in, func(t *testing.T) {
			_, err := pycompat.Lookup(in)
			require.ErrorIs(t, err, pycompat.ErrUnknownVersion)
			require.ErrorContains(t, err, fmt.Sprintf("%q (newest known: 0.33.0, oldest: 0.11.0)", in))
		})
	}
	require.Equal(t, "0.33.0", pycompat.Newest().Version)
	require.Len(t, pycompat.Releases(), 35)

	g, err := pycompat.TreatAs("0.34.0", "0.33.0")
	require.NoError(t, err)
	require.Equal(t, "0.34.0", g.Version)
	require.True(t, g.SameWire(pycompat.Newest()))
	_, err = pycompat.TreatAs("0.34.0", "0.35.0")
	require.ErrorIs(t, err, pycompat.ErrUnknownVersion)
	require.ErrorContains(t, err, `"0.35.0"`)

	require.NotEqual(t, "0.34.0", pycompat.Newest().Version, "the table is as it was")
	require.Same(t, lookup(t, "0.31.0"), lookup(t, "v0.31.0+cpu"))

	all := pycompat.Releases()
	all[0] = nil
	require.Equal(t, "0.11.0", pycompat.Releases()[0].Version)
}

func TestResolve(t *testing.T) {
	g, err := pycompat.Resolve(nil)
	require.NoError(t, err)
	require.Same(t, pycompat.Newest(), g)
	treated, err := pycompat.TreatAs("0.34.0", "0.32.0")
	require.NoError(t, err)
	for _, want := range append(pycompat.Releases(), treated) {
		g, err := pycompat.Resolve(want)
		require.NoError(t, err)
		require.Same(t, want, g)
	}
	for _, g := range []*pycompat.Generation{{}, {Version: "0.33.0", Counting: pycompat.CountPerAddress, ItemForm: pycompat.ItemMap}} {
		_, err = pycompat.Resolve(g)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("Generation %q is incomplete", g.Version))
	}
}

func TestNames(t *testing.T) {
	t.Setenv(pycompat.SegmentEnv, "")
	require.Equal(t, "VLLM_OBJECT_STORAGE_SHM_BUFFER", lookup(t, "0.14.1").SegmentName())
	a, b := lookup(t, "0.15.0").SegmentName(), lookup(t, "0.15.0").SegmentName()
	require.Regexp(t, "^VLLM_OBJECT_STORAGE_SHM_BUFFER_[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$", a)
	require.NotEqual(t, a, b)
	t.Setenv(pycompat.SegmentEnv, "mine")
	require.Equal(t, "mine", lookup(t, "0.14.1").SegmentName())
	require.Equal(t, "mine", pycompat.Newest().SegmentName())
}

func TestSizes(t *testing.T) {
	n, err := pycompat.RingSize(4)
	require.NoError(t, err)
	require.Equal(t, 4<<30, n)
	n, err = pycompat.RingSize(15.2 / 1024) // truncated as Python's int() does
	require.NoError(t, err)
	require.Equal(t, 15938355, n)
	for _, gb := range []float64{0, -1, 1e-12, 1 << 34} {
		_, err = pycompat.RingSize(gb)
		require.ErrorIs(t, err, fs.ErrInvalid, gb)
		require.ErrorContains(t, err, fmt.Sprintf("mm_processor_cache_gb %v is not above 0", gb))
	}
}
