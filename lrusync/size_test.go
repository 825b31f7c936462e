package lrusync_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// item has one elem for each of data.
func item(data ...any) *serde.Item {
	it := &serde.Item{}
	for i, d := range data {
		it.Elems = append(it.Elems, serde.Elem{Key: fmt.Sprint("e", i), Data: d})
	}
	return it
}

func zeros(dtype serde.DType, shape ...int) *serde.Tensor {
	return &serde.Tensor{DType: dtype, Shape: shape}
}

func TestItemSize(t *testing.T) {
	narrow, wide := lrusync.Python{NarrowZero: true}, lrusync.Python{}
	l := func(d ...any) []any { return append([]any{}, d...) }
	for _, tc := range []struct {
		name         string
		data         any
		narrow, wide int64
	}{
		{"None", nil, 16, 16},
		{"True", true, 28, 28},
		{"False", false, 24, 28},
		{"0", int64(0), 24, 28},
		{"unsigned 0", uint64(0), 24, 28},
		{"1", int64(1), 28, 28},
		{"an int", 1 << 30, 32, 32},
		{"a negative int", -1, 28, 28},
		{"-1", int64(-1), 28, 28},
		{"2^30-1", int64(1<<30 - 1), 28, 28},
		{"1-2^30", int64(1 - 1<<30), 28, 28},
		{"2^30", int64(1 << 30), 32, 32},
		{"-2^30", int64(-1 << 30), 32, 32},
		{"2^60-1", int64(1<<60 - 1), 32, 32},
		{"2^60", int64(1 << 60), 36, 36},
		{"2^63-1", int64(math.MaxInt64), 36, 36},
		{"-2^63", int64(math.MinInt64), 36, 36},
		{"2^64-1", uint64(math.MaxUint64), 36, 36},
		{"0.0", float64(0), 24, 24},
		{"nan", math.NaN(), 24, 24},
		{"tensor", zeros("bfloat16", 2, 3), 12, 12},
		{"scalar tensor", zeros("int64"), 8, 8},
		{"empty tensor", zeros("float32", 0, 4), 0, 0},
		{"list", l(int64(0), float64(1), zeros("uint8", 100)), 148, 152},
		{"lists in lists", l(l(nil, l(false)), int64(1)), 68, 72},
		{"an empty list beside others", l(l(), l(l()), nil), 16, 16},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, c := range []struct {
				python lrusync.Python
				want   int64
			}{{narrow, tc.narrow}, {wide, tc.wide}} {
				got, err := lrusync.ItemSize(item(tc.data), c.python)
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				got, err = lrusync.ItemSize(item(tc.data, float64(0), tc.data), c.python)
				require.NoError(t, err)
				require.Equal(t, 2*c.want+24, got, "elems add up, and cost nothing themselves")
			}
		})
	}
}

func TestItemSizeRefuses(t *testing.T) {
	deep := []any{nil}
	for range 64 {
		deep = []any{deep}
	}
	huge := zeros("uint8", 1<<62)
	for _, tc := range []struct {
		name string
		item *serde.Item
		want error
		text string
	}{
		{"no item", nil, lrusync.ErrUnsized, ""},
		{"no elems", &serde.Item{}, lrusync.ErrUnsized, ""},
		{"an empty list", item([]any{}), lrusync.ErrUnsized, `"e0"`},
		{"lists of nothing", item(int64(1), []any{[]any{}, []any{[]any{}}}), lrusync.ErrUnsized, `"e1"`},
		{"no tensor", item((*serde.Tensor)(nil)), fs.ErrInvalid, `"e0": lrusync: invalid argument: data of type *serde.Tensor`},
		{"too deep", item(deep), fs.ErrInvalid, fmt.Sprintf("lists nested deeper than %d", 64)},
		{"unknown dtype", item(zeros("float128", 1)), nil, "float128"},
		{"negative shape", item(zeros("uint8", -1)), nil, "[-1]"},
		{"more than int64 in elems", item(huge, huge), fs.ErrInvalid, "an item of more than 9223372036854775807 bytes"},
		{"more than int64 in a list", item([]any{huge, huge, huge, huge}), fs.ErrInvalid, "an item of more than 9223372036854775807 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, err := lrusync.ItemSize(tc.item, lrusync.Python{})
			require.ErrorContains(t, err, tc.text)
			require.Zero(t, n)
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
			}
			if tc.want == lrusync.ErrUnsized {
				require.Equal(t, "reduce() of empty iterable with no initial value", sentinel.UpstreamText(err))
			}
		})
	}
}

func TestParsePython(t *testing.T) {
	for version, narrow := range map[string]bool{
		"3.9": true, "3.10": true, "3.10.13": true, "3.11.0": true, "3.11.1": true,
		"3.11": false, "3.11.2": false, "3.11.7": false, "3.12": false, "3.12.1": false, "3.13.0": false, "3.14": false,
	} {
		t.Run(version, func(t *testing.T) {
			p, err := lrusync.ParsePython(version)
			require.NoError(t, err)
			require.Equal(t, lrusync.Python{NarrowZero: narrow}, p)
		})
	}
	const malformed, unknown = "want something like 3.12 or 3.11.7", "the sizes of 3.9 to 3.14 are known"
	for version, problem := range map[string]string{
		"": malformed, "3.": malformed, "3.11.x": malformed, "3.11.2.1": malformed, "3.-11": malformed, "python3.11": malformed,
		"3.11.0rc1": malformed, "3.99999999999": malformed,
		"3": unknown, "3.8": unknown, "3.15": unknown, "2.7": unknown, "4.11": unknown,
	} {
		t.Run("refuses "+version, func(t *testing.T) {
			_, err := lrusync.ParsePython(version)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, fmt.Sprintf("Python version %q: %s", version, problem))
		})
	}
}

// What an item of tensors takes is their bytes, however they are nested.
func TestItemSizeOfTensorsIsTheirBytes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var want int64
		it := &serde.Item{}
		var data func(depth int) any
		data = func(depth int) any {
			if depth > 0 && rapid.Bool().Draw(r, "list") {
				l := []any{data(depth - 1)}
				for range rapid.IntRange(0, 3).Draw(r, "more") {
					l = append(l, data(depth-1))
				}
				return l
			}
			shape := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 4).Draw(r, "shape")
			x := &serde.Tensor{DType: rapid.SampledFrom([]serde.DType{"bool", "uint8", "float16", "int32", "complex64"}).Draw(r, "dtype"), Shape: shape}
			n := int64(x.DType.ItemSize())
			for _, d := range shape {
				n *= int64(d)
			}
			want += n
			return x
		}
		for i := range rapid.IntRange(1, 4).Draw(r, "elems") {
			it.Elems = append(it.Elems, serde.Elem{Key: fmt.Sprint(i), Data: data(3)})
		}
		got, err := lrusync.ItemSize(it, lrusync.Python{NarrowZero: rapid.Bool().Draw(r, "narrow")})
		require.NoError(r, err)
		require.Equal(r, want, got)
	})
}

// sizesInPython prints the version and, for each list of a JSON list, the sum
// of the sizes of what is in it and in its lists.
const sizesInPython = `
import json, platform, sys
if sys.implementation.name != "cpython" or sys.maxsize < 2**32 or not getattr(sys, "_is_gil_enabled", lambda: True)():
    sys.exit("not a usual CPython of 64 bits")
def leaves(x):
    if isinstance(x, list):
        for y in x:
            yield from leaves(y)
    else:
        yield x
json.dump([platform.python_version(), [sum(map(sys.getsizeof, leaves(x))) for x in json.load(sys.stdin)]], sys.stdout)
`

// Every Python that is at hand gives numbers the sizes that we give them.
func TestSizesOfNumbersInPython(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	values := randomValues(rnd, 3000)
	in, err := json.Marshal(values)
	require.NoError(t, err)
	var seen, left []string
	for _, name := range []string{"python3", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		var errs bytes.Buffer
		cmd := exec.Command(path, "-c", sizesInPython)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &errs
		out, err := cmd.Output()
		if err != nil { // a name that a version manager has and can't run now
			left = append(left, fmt.Sprintf("%s: %v: %.80s", name, err, strings.TrimSpace(errs.String())))
			continue
		}
		var version string
		var sizes []int64
		require.NoError(t, json.Unmarshal(out, &[]any{&version, &sizes}))
		python, err := lrusync.ParsePython(version)
		if err != nil {
			left = append(left, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if slices.Contains(seen, version) {
			continue
		}
		seen = append(seen, version)
		require.Len(t, sizes, len(values))
		for i, v := range values {
			got, err := lrusync.ItemSize(item(fromJSON(v)), python)
			if sizes[i] == 0 { // nothing in it
				require.ErrorIs(t, err, lrusync.ErrUnsized, "%v", v)
				continue
			}
			require.NoError(t, err, "%v", v)
			require.Equal(t, sizes[i], got, "Python %s: %v", version, v)
		}
	}
	if seen == nil {
		t.Skipf("no CPython from 3.9 to 3.14 to compare with: %q", left)
	}
	t.Logf("%d values as in Python %s", len(values), strings.Join(seen, ", "))
}

func randomValues(rnd *rand.Rand, n int) []any {
	values := []any{[]any{0, false, true, 1, nil, 0.5, 1 << 30, 1<<30 - 1, 1 << 60, 1<<60 - 1, math.MinInt64, uint64(math.MaxUint64)}}
	var value func(depth int) any
	value = func(depth int) any {
		switch rnd.IntN(9) {
		case 0:
			return nil
		case 1:
			return rnd.IntN(2) == 0
		case 2:
			return rnd.NormFloat64() + 1e-3 // JSON would write a whole one like an int
		case 3:
			return 0
		case 4:
			return rnd.Uint64()
		case 5, 6:
			return int64(rnd.Uint64()) >> rnd.IntN(64)
		}
		l := []any{}
		for range rnd.IntN(4) {
			if depth < 5 {
				l = append(l, value(depth+1))
			}
		}
		return l
	}
	for range n {
		values = append(values, value(0))
	}
	return append(values, values[0].([]any)...)
}

func fromJSON(v any) any {
	switch v := v.(type) {
	case bool, int, int64, uint64, float64:
		return v
	case []any:
		l := []any{}
		for _, x := range v {
			l = append(l, fromJSON(x))
		}
		return l
	}
	return nil
}
