package serde

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

// samples returns a busy item in each form.
func samples(t testing.TB) map[pycompat.ItemForm][][]byte {
	out := map[pycompat.ItemForm][][]byte{}
	for _, g := range goldentest.ItemForms() {
		o := Options{Generation: g}
		it := sampleItem()
		if o.Generation.ItemForm != pycompat.ItemMap {
			it.Modality = "image"
		}
		p, err := NewPlan(it, o)
		require.NoError(t, err)
		out[o.Generation.ItemForm] = p.Frames()
	}
	return out
}

func sampleItem() *Item {
	return &Item{Elems: []Elem{
		{"pixel_values", zeros("float32", 2, 3), Field{}},
		{"big", zeros("uint8", 300), FlatFromSizes(3, 4)},
		{"n", []any{int64(-70000), uint64(1 << 63), float64(1.5), true, []any{}, zeros("int64"), zeros("bfloat16", 200)}, Field{Kind: Flat, Slices: [][]Slice{{Range(0, 3)}}, Dim: -1}},
		{"none", nil, Field{Kind: Shared, BatchSize: 300}},
	}}
}

func formOptions(t testing.TB, form pycompat.ItemForm) Options {
	for _, g := range pycompat.Releases() {
		if g.ItemForm == form {
			return Options{Generation: g}
		}
	}
	t.Fatal("no such form")
	return Options{}
}

// corrupt fails unless err reports corrupt data with that text.
func corrupt(t testing.TB, err error, text string, more ...any) {
	t.Helper()
	require.ErrorIs(t, err, ErrCorrupt, more...)
	require.ErrorContains(t, err, text, more...)
}

// typed fails unless err is nil or of the package's kinds.
func typed(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
		t.Fatalf("untyped error %v", err)
	}
}

// decodeAll decodes with and without the guard: the document may change behind
// its back, so nothing may hang on it.
func decodeAll(t testing.TB, f [][]byte, o Options) {
	t.Helper()
	for _, read := range []func(*decoder) (any, error){
		func(d *decoder) (any, error) { return d.item() },
		func(d *decoder) (any, error) { return d.tensor() },
		func(d *decoder) (any, error) { return readItems(d) },
	} {
		_, guarded := decode(f, o, read)
		typed(t, guarded)
		if len(f) == 0 {
			continue
		}
		_, err := codec.DecodeUnguarded(f, func(d *codec.Decoder) (any, error) { return read(&decoder{d, o.Generation, newMemory()}) })
		typed(t, err)
		if guarded == nil && err != nil {
			t.Fatalf("only the guarded decoder accepts: %v", err)
		}
	}
}

func TestCorruptItems(t *testing.T) {
	for form, f := range samples(t) {
		o := formOptions(t, form)
		decodeAll(t, f, o)
		main := f[0]
		for n := range main {
			g := append([][]byte{main[:n:n]}, f[1:]...)
			_, err := DecodeItem(g, o)
			corrupt(t, err, "corrupt main document at byte", "cut to %d bytes", n)
			decodeAll(t, g, o)
		}
		for i := range main {
			for bit := range 8 {
				bad := bytes.Clone(main)
				bad[i] ^= 1 << bit
				decodeAll(t, append([][]byte{bad}, f[1:]...), o)
			}
		}
		for i := range f {
			g := slices.Clone(f)
			short, long := fmt.Sprintf("got %d, want %d bytes by dtype and shape", len(f[i])-1, len(f[i])), fmt.Sprintf("got %d, want %d bytes by dtype and shape", len(f[i])+1, len(f[i]))
			few := fmt.Sprintf("want the index of one of %d frames", i-1)
			if i == 0 {
				short, long, few = "corrupt main document at byte", "got 1 bytes follow the document", "got none, want a main document"
			}
			g[i] = g[i][:len(g[i])-1]
			_, err := DecodeItem(g, o)
			corrupt(t, err, short, "frame %d one short", i)
			g[i] = append(bytes.Clone(f[i]), 0)
			_, err = DecodeItem(g, o)
			corrupt(t, err, long, "frame %d one long", i)
			_, err = DecodeItem(f[:i:i], o)
			corrupt(t, err, few, "%d frames", i)
		}
		_, err := DecodeItem(append(slices.Clone(f), []byte{}), o)
		corrupt(t, err, fmt.Sprintf("got none for frame %d, want a tensor for each", len(f)))
		for other := range samples(t) {
			if other == form {
				continue
			}
			_, err := DecodeItem(f, formOptions(t, other))
			text := map[pycompat.ItemForm]string{ // as the other form has it
				pycompat.ItemMap:        "item at byte 0: got an array, want a map",
				pycompat.ItemKeyed:      `field of elem "pixel_values" at byte 93: got an array of 1, want [name, arguments]`,
				pycompat.ItemPositional: `field of elem "pixel_values" at byte 93: got 1, want at most 0 arguments of a batched one`,
			}[other]
			if form == pycompat.ItemMap {
				text = "item at byte 0: got a map, want an array"
			}
			corrupt(t, err, text, "form %v read as %v", form, other)
		}
	}
}

func TestCorruptMetadata(t *testing.T) {
	for _, m := range []Metadata{{typeItem, 560, []int64{48, 512}}, {typeTensor, 1 << 33, []int64{1 << 33}}, {typePickle, 21, nil}, {typeItem, 0, []int64{}}} {
		b := AppendMetadata(nil, m)
		for n := range b {
			_, _, err := ParseMetadata(b[:n])
			corrupt(t, err, "corrupt metadata pickle at byte", "cut to %d bytes", n)
		}
		for i := range b {
			for v := range 256 {
				bad := bytes.Clone(b)
				bad[i] = byte(v)
				got, n, err := ParseMetadata(bad)
				typed(t, err)
				if err == nil {
					require.LessOrEqual(t, n, len(bad))
					checkSums(t, got)
				}
			}
		}
	}
}

func checkSums(t testing.TB, m Metadata) {
	if m.Lens == nil {
		return
	}
	var sum int64
	for _, n := range m.Lens {
		if n < 0 {
			t.Fatalf("negative length %d", n)
		}
		sum += n
	}
	if sum != m.NBytes {
		t.Fatalf("lengths sum up to %d, not %d", sum, m.NBytes)
	}
}
