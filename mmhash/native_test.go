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
	key := func(s Scope, uuid string, item Value, kwargs ...Entry) string {
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
	base := key(s, "", Bytes("JPEG"))
	fresh("base", base)
	fresh("tenant", key(Scope{"tenan", "tmodel", "image"}, "", Bytes("JPEG")))
	fresh("model", key(Scope{"tenant", "model2", "image"}, "", Bytes("JPEG")))
	fresh("modality", key(Scope{"tenant", "model", "video"}, "", Bytes("JPEG")))
	fresh("uuid", key(s, "u", Bytes("JPEG")))
	fresh("uuid alone", key(s, "u", nil))
	fresh("uuid, other content", key(s, "u", Bytes("PNG")))
	fresh("other tenant's uuid", key(Scope{"t2", "model", "image"}, "u", nil))
	fresh("the key as a uuid", key(s, base, nil))
	fresh("kwargs", key(s, "", Bytes("JPEG"), Arg("a", Int(1)), Arg("b", Int(2))))
	for i, v := range []Value{
		Str("JPEG"), Pickled("JPEG"), Int(0), Float(0), Float(math.Copysign(0, -1)), Bool(false), Bool(true), Bytes("\x01"), Str(""), Bytes{},
		List{}, Map{}, List{Int(0)}, Map{{"0", Int(0)}}, Int(-1), Uint(math.MaxUint64), Int(math.MinInt64), Uint(1 << 63), List{nil},
		&EncodedImage{Data: []byte("JPEG")}, &EncodedVideo{Data: []byte("JPEG")}, &EncodedImage{Data: []byte("JPEG"), ID: &[16]byte{}},
	} {
		fresh(fmt.Sprint(i), key(s, "", v))
	}
	require.Equal(t, base, key(s, "", Reader{strings.NewReader("JPEG"), 4}))
	require.Equal(t, key(s, "", Bytes("x"), Arg("a", Int(1)), Arg("b", Int(2))), key(s, "", Bytes("x"), Arg("b", Int(2)), Arg("a", Int(1))))
	require.Equal(t, key(s, "", Map{{"a", Int(1)}, {"b", nil}}), key(s, "", Map{{"b", nil}, {"a", Uint(1)}}))

	var deep Value
	for range MaxDepth + 1 {
		deep = List{deep}
	}
	for name, c := range map[string]struct {
		v    Value
		text string
	}{
		"twice":      {Map{{"a", Int(1)}, {"a", Int(1)}}, `the name "a" is given twice in a map`},
		"UTF-8":      {Str("\xff"), `the text "\xff" is not valid UTF-8`},
		"deep":       {deep, "nested more than 64 deep"},
		"nil array":  {(*Array)(nil), "a nil *mmhash.Array"},
		"nil image":  {(*EncodedImage)(nil), "a nil *mmhash.EncodedImage"},
		"frames":     {&EncodedVideo{Frames: Int(1)}, "not mmhash.Int"},
		"nil frames": {&EncodedVideo{Frames: (*Array)(nil)}, "a nil *mmhash.Array"},
		"reader":     {Reader{nil, 3}, "a Reader needs a reader"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NativeKey(s, "", c.v)
			requireInvalid(t, err, "", c.text)
		})
	}
	_, err := NativeKey(s, "", nil)
	requireInvalid(t, err, "", "an item or a UUID is needed")
	_, err = NativeKey(s, "u", nil, Arg("a", nil), Arg("a", nil))
	requireInvalid(t, err, "", `the name "a" is given twice`)
}

// TestNativeKeyIsStable: keys may be stored, so they never change. This one was
// computed from docs/format.md in Python.
func TestNativeKeyIsStable(t *testing.T) {
	k, err := NativeKey(Scope{"tenant", "model", "image"}, "uuid", &EncodedImage{Data: []byte("JPEG")}, Arg("num_crops", Int(4)))
	require.NoError(t, err)
	require.Equal(t, "05dab5468e65ecae0221396ae240fb059f7d2ff10ec95c3e4fd676a205964ca9", k)
}
