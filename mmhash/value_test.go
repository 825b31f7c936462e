package mmhash

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestIntegers: every Go type of an integer has the hash of the number.
func TestIntegers(t *testing.T) {
	for s, want := range map[string]any{
		"0": int64(0), "-0": int64(0), "-1": int64(-1), "784": int64(784),
		"9223372036854775807": int64(math.MaxInt64), "-9223372036854775808": int64(math.MinInt64),
		"9223372036854775808": uint64(1 << 63), "18446744073709551615": uint64(math.MaxUint64),
	} {
		t.Run(s, func(t *testing.T) {
			n, ok := new(big.Int).SetString(s, 10)
			require.True(t, ok)
			same := []any{json.Number(s), n}
			if n.IsInt64() {
				same = append(same, int(n.Int64()))
			}
			if n.IsUint64() {
				same = append(same, n.Uint64())
			}
			for _, v := range same {
				require.Equal(t, hexOf(t, Options{}, arg("x", want)), hexOf(t, Options{}, arg("x", v)), "%T", v)
				require.Equal(t, nativeOf(t, want), nativeOf(t, v), "%T", v)
			}
		})
	}
	for _, s := range []string{"18446744073709551616", "-9223372036854775809", strings.Repeat("9", 1000)} {
		t.Run("too large/"+s[:8], func(t *testing.T) {
			n, ok := new(big.Int).SetString(s, 10)
			require.True(t, ok)
			for _, v := range []any{json.Number(s), n} {
				_, err := hexOrError(Options{}, arg("x", v))
				require.ErrorIs(t, err, ErrUnsupported)
				require.Less(t, len(err.Error()), 300)
				require.ErrorContains(t, err, `argument "x"`)
				if len(s) < 100 {
					require.ErrorContains(t, err, "pointer")
					require.ErrorContains(t, err, s)
				}
				_, err = NativeKey(Scope{}, "", v)
				require.ErrorIs(t, err, ErrUnsupported)
			}
		})
	}
	_, err := hexOrError(Options{}, arg("x", new(big.Int).Lsh(big.NewInt(1), 1<<20)))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "an integer of 1048577 bits")
	_, err = hexOrError(Options{}, arg("x", (*big.Int)(nil)))
	requireInvalid(t, err, "x", "a nil *big.Int")
	for _, s := range []string{"", "x", "1.", ".5", "0x10", "1_000", "+1", " 1", "1 ", "1.0 ", "1e0\n", "01", "nan", `"1"`, "[1]", "true"} {
		t.Run("malformed/"+s, func(t *testing.T) {
			_, err := hexOrError(Options{}, arg("x", json.Number(s)))
			requireInvalid(t, err, "x", fmt.Sprintf("%q is no JSON number", s))
		})
	}
}

// TestJSONNumbersAreWhatPythonReads: a fraction or an exponent makes a float, whose
// hash is not that of the integer.
func TestJSONNumbersAreWhatPythonReads(t *testing.T) {
	for s, want := range map[string]any{
		"1": int64(1), "1.0": float64(1), "1e0": float64(1), "1E2": float64(100), "-0.0": math.Copysign(0, -1), "0.5": 0.5,
		"1e999": math.Inf(1), "-1e999": math.Inf(-1), "1e-999": float64(0), "18446744073709551616.0": float64(1 << 64),
	} {
		t.Run(s, func(t *testing.T) {
			require.Equal(t, hexOf(t, Options{}, arg("x", want)), hexOf(t, Options{}, arg("x", json.Number(s))))
			require.Equal(t, nativeOf(t, want), nativeOf(t, json.Number(s)))
		})
	}
	differ(t, json.Number("1"), json.Number("1.0"))
	differ(t, 784, float64(784))
}

// TestOtherTypesAreRefused: whatever stands for nothing in Python has no hash, also
// not an empty one, and the error names its type. (A pointer to a value, which once
// compiled as one, was hashed as nothing.)
func TestOtherTypesAreRefused(t *testing.T) {
	type text string
	one := int64(1)
	for _, v := range []any{
		&one, float32(1), int8(1), int32('a'), byte('a'), uint(1), uint32(1), uintptr(1), complex(1, 0), text("a"), time.Second,
		new("a"), &[]byte{1}, &[]any{}, &[]Entry{}, []string{"a"}, []int{1}, [1]int{1}, map[string]any{"a": 1}, json.RawMessage("1"), struct{}{},
		Reader{strings.NewReader("a"), 1}, Array{"|u1", nil, []byte{1}}, Tensor{"uint8", nil, []byte{1}}, Image{}, EncodedImage{}, EncodedVideo{},
		new(Pickled), Entry{"a", 1}, &Entry{"a", 1}, *big.NewInt(1), big.NewFloat(1), errors.New("a"), func() {},
	} {
		name := fmt.Sprintf("%T", v)
		t.Run(name, func(t *testing.T) {
			want := "a " + name + " stands for no Python object"
			for _, version := range []string{"0.11.0", "0.30.0", "0.33.0"} {
				o := Options{Generation: generation(t, version)}
				for _, v := range []any{v, []any{1, v}, []Entry{{"k", v}}} {
					_, err := hexOrError(o, arg("it", v))
					requireInvalid(t, err, "it", want)
				}
				h, err := NewHasher(o)
				require.NoError(t, err)
				_, err = h.Key(Identity{ModelID: "m", Modality: "image", Item: v})
				requireInvalid(t, err, "image", want)
			}
			for _, v := range []any{v, []any{1, v}, []Entry{{"k", v}}} {
				_, err := NativeKey(Scope{}, "", v)
				requireInvalid(t, err, "", want)
			}
		})
	}
	_, err := hexOrError(Options{}, arg("it", (*Reader)(nil)))
	requireInvalid(t, err, "it", "a nil *Reader")
	_, err = NativeKey(Scope{}, "", (*Reader)(nil))
	requireInvalid(t, err, "", "a nil *Reader")
}

func nativeOf(t *testing.T, v any) string {
	t.Helper()
	k, err := NativeKey(Scope{}, "", v)
	require.NoError(t, err)
	return k
}
