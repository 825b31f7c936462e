package mmhash

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestNativeStreamCanBeReadBack: from its stream an input can be told, so that
// no two share one.
func TestNativeStreamCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawNative(t)
		b, err := in.stream()
		if err != nil {
			t.Fatal(err)
		}
		back, whole := readNative(b)
		if !whole {
			t.Fatalf("the stream of %s ends early or late", show(in))
		}
		if got, want := show(back), show(in.canonical()); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	})
}

// TestNativeKeysDiffer: two inputs have one key if and only if they are the
// same.
func TestNativeKeysDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawNative(t), drawNative(t)
		if rapid.Bool().Draw(t, "close") { // differ in one part at most
			v := b.Item
			b = a
			b.Item = v
		}
		ka, err := a.stream()
		if err != nil {
			t.Fatal(err)
		}
		kb, err := b.stream()
		if err != nil {
			t.Fatal(err)
		}
		if same := show(a.canonical()) == show(b.canonical()); same != bytes.Equal(ka, kb) {
			t.Fatalf("same is %v:\n%s\n%s", same, show(a), show(b))
		}
	})
}

func TestNativeKey(t *testing.T) {
	key := func(s Scope, uuid string, item any, kwargs ...Entry) string {
		t.Helper()
		k, err := NativeKey(s, uuid, item, kwargs...)
		require.NoError(t, err)
		require.Len(t, k, 64)
		return k
	}
	seen := map[string]string{}
	fresh := func(name, k string) {
		t.Helper()
		require.NotContains(t, seen, k, name)
		seen[k] = name
	}
	s := Scope{"tenant", "model", "image"}
	base := key(s, "", []byte("JPEG"))
	fresh("base", base)
	fresh("tenant", key(Scope{"tenan", "tmodel", "image"}, "", []byte("JPEG")))
	fresh("model", key(Scope{"tenant", "model2", "image"}, "", []byte("JPEG")))
	fresh("modality", key(Scope{"tenant", "model", "video"}, "", []byte("JPEG")))
	fresh("uuid", key(s, "u", []byte("JPEG")))
	fresh("uuid alone", key(s, "u", nil))
	fresh("uuid, other content", key(s, "u", []byte("PNG")))
	fresh("other tenant's uuid", key(Scope{"t2", "model", "image"}, "u", nil))
	fresh("the key as a uuid", key(s, base, nil))
	fresh("kwargs", key(s, "", []byte("JPEG"), arg("a", int64(1)), arg("b", int64(2))))
	for i, v := range []any{
		"JPEG", Pickled("JPEG"), int64(0), float64(0), math.Copysign(0, -1), false, true, []byte("\x01"), "", []byte{},
		[]any{}, []Entry{}, []any{int64(0)}, []Entry{{"0", int64(0)}}, int64(-1), uint64(math.MaxUint64), int64(math.MinInt64), uint64(1 << 63), []any{nil},
		&EncodedImage{Data: []byte("JPEG")}, &EncodedVideo{Data: []byte("JPEG")}, &EncodedImage{Data: []byte("JPEG"), ID: &[16]byte{}},
	} {
		fresh(fmt.Sprint(i), key(s, "", v))
	}
	require.Equal(t, base, key(s, "", &Reader{strings.NewReader("JPEG"), 4}))
	require.Equal(t, key(s, "", []byte("x"), arg("a", int64(1)), arg("b", int64(2))), key(s, "", []byte("x"), arg("b", int64(2)), arg("a", int64(1))))
	require.Equal(t, key(s, "", []Entry{{"a", int64(1)}, {"b", nil}}), key(s, "", []Entry{{"b", nil}, {"a", uint64(1)}}))

	var deep any
	for range maxDepth + 1 {
		deep = []any{deep}
	}
	for name, c := range map[string]struct {
		v    any
		text string
	}{
		"twice":      {[]Entry{{"a", int64(1)}, {"a", int64(1)}}, `the name "a" is given twice in a map`},
		"UTF-8":      {"\xff", `the text "\xff" is not valid UTF-8`},
		"deep":       {deep, "nested more than 64 deep"},
		"nil array":  {(*Array)(nil), "a nil *mmhash.Array"},
		"nil image":  {(*EncodedImage)(nil), "a nil *mmhash.EncodedImage"},
		"frames":     {&EncodedVideo{Frames: int64(1)}, "not int64"},
		"nil frames": {&EncodedVideo{Frames: (*Array)(nil)}, "a nil *mmhash.Array"},
		"reader":     {&Reader{nil, 3}, "a Reader needs a reader"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NativeKey(s, "", c.v)
			requireInvalid(t, err, "", c.text)
		})
	}
	_, err := NativeKey(s, "", nil)
	requireInvalid(t, err, "", "an item or a UUID is needed")
	_, err = NativeKey(s, "u", nil, arg("a", nil), arg("a", nil))
	requireInvalid(t, err, "", `the name "a" is given twice`)
}

// TestNativeKeyIsStable: keys may be stored, so they never change. This one was
// computed from docs/format.md in Python.
func TestNativeKeyIsStable(t *testing.T) {
	k, err := NativeKey(Scope{"tenant", "model", "image"}, "uuid", &EncodedImage{Data: []byte("JPEG")}, arg("num_crops", int64(4)))
	require.NoError(t, err)
	require.Equal(t, "05dab5468e65ecae0221396ae240fb059f7d2ff10ec95c3e4fd676a205964ca9", k)
}
