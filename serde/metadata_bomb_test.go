package serde

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/alloctest"
	"github.com/ringcache/ringcache/internal/codec"
)

// TestMoreFramesThanTheDocumentCanName: a long list of empty frames costs two
// bytes of metadata each, and would cost a slice each.
func TestMoreFramesThanTheDocumentCanName(t *testing.T) {
	lens := make([]int64, 100001)
	lens[0] = 1
	_, err := DecodeValue(Metadata{Type: typeItem, NBytes: 1, Lens: lens}, []byte{0x80}, Options{})
	corrupt(t, err, "metadata: got 100000, want at most the 0 frames that a document of 1 bytes can refer to")
	_, err = DecodeValue(Metadata{Type: strings.Repeat("x", 1<<20), NBytes: 0, Lens: []int64{0}}, nil, Options{})
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "Unsupported object type 'xxx")
	require.Less(t, len(err.Error()), 400)
}

// hostileMetadata is n bytes of frame lengths of 0 behind the first, in both forms
// of the pickle.
func hostileMetadata(n int, first byte) map[string][]byte {
	python := append([]byte("\x80\x05\x8c\x14MultiModalKwargsItem\x94K"), first)
	python = append(python, "]\x94("...)
	rust := append([]byte("\x80\x02(\x8c\x14MultiModalKwargsItemK"), first)
	rust = append(rust, "]("...)
	lens := append([]byte{'K', first}, bytes.Repeat([]byte{'K', 0}, n/2)...)
	return map[string][]byte{
		"python":  append(append(python, lens...), "e\x87\x94."...),
		"rust":    append(append(rust, lens...), "et."...),
		"appends": append(append(append(rust[:len(rust)-1:len(rust)-1], 'K', first, 'a'), bytes.Repeat([]byte{'K', 0, 'a'}, n/3)...), "t."...),
	}
}

// TestMetadataWithMoreFramesThanItsDocumentCanName: each frame behind the document
// costs the document the array that refers to it. A longer list of lengths is
// refused as soon as it is, and not read to its end first.
func TestMetadataWithMoreFramesThanItsDocumentCanName(t *testing.T) {
	const n, limit = 16 << 20, 4 << 10
	for name, b := range hostileMetadata(n, 200) {
		var err error
		got := alloctest.Bytes(func() { _, _, err = ParseMetadata(b) })
		corrupt(t, err, "got more, want at most the 28 frames that a document of 200 bytes can refer to", name)
		require.Less(t, got, uint64(limit), name)
		var ce *codec.CorruptError
		require.ErrorAs(t, err, &ce, name)
		require.Less(t, ce.Offset, 200, "%s: the rest is not looked at", name)
	}
	lens := append([]int64{200}, make([]int64, n)...)
	m := Metadata{Type: typeItem, NBytes: 200, Lens: lens}
	require.Less(t, alloctest.Bytes(func() {
		_, err := DecodeValue(m, make([]byte, 200), Options{})
		corrupt(t, err, "metadata: got 16777216, want at most the 28 frames that a document of 200 bytes can refer to")
	}), uint64(limit))
}

// TestPayloadWithoutTheDocumentThatItsMetadataTellsOf: the document that would have
// room to refer to so many frames must be there, not only be declared.
func TestPayloadWithoutTheDocumentThatItsMetadataTellsOf(t *testing.T) {
	const n, limit = 16 << 20, 4 << 10
	lens := make([]int64, n/2)
	lens[0] = 7 * n
	b := AppendMetadata(nil, Metadata{Type: typeItem, NBytes: lens[0], Lens: lens})
	var err error
	require.Less(t, alloctest.Bytes(func() { _, _, err = ParsePayload(b) }), uint64(limit))
	corrupt(t, err, "bytes that are there")
	var ce *codec.CorruptError
	require.ErrorAs(t, err, &ce)
	require.Less(t, ce.Offset, 50)

	m := Metadata{Type: typeItem, NBytes: 9, Lens: []int64{8, 1}}
	b = AppendMetadata(nil, m)
	for room, want := range map[int]bool{8: false, 9: true, 12: true} {
		data := seq(room, 1, 1)
		got, tail, err := ParsePayload(append(b[:len(b):len(b)], data...))
		if !want {
			corrupt(t, err, "got 0, want 1 more bytes")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, m, got)
		require.Equal(t, data[room-9:], tail)
	}
}

// TestMetadataWithEmptyBatches: they add nothing to the list, so any number of them
// could follow each other.
func TestMetadataWithEmptyBatches(t *testing.T) {
	for name, p := range map[string]string{
		"python": "\x80\x05\x8c\x06Tensor\x94K\x0e]\x94(K\x0ee" + strings.Repeat("(e", 1<<20) + "\x87\x94.",
		"rust":   "\x80\x02(\x8c\x06TensorK\x0e](K\x0ee" + strings.Repeat("(e", 1<<20) + "t.",
	} {
		_, _, err := ParseMetadata([]byte(p))
		var ce *codec.CorruptError
		require.ErrorAs(t, err, &ce, name)
		require.Equal(t, "an integer", ce.Want, name)
		require.Less(t, ce.Offset, 40, name)
	}
}

// TestDenseFrames: an item of as many frames as its document can name is read, and
// takes a small multiple of its bytes.
func TestDenseFrames(t *testing.T) {
	const n, multiple = 1 << 16, 80
	l := make([]any, n)
	for i := range l {
		l[i] = &Tensor{DType: "int8", Shape: []int{1}, Data: []byte{1}}
	}
	p, err := NewPlan(&Item{Elems: []Elem{{Key: "x", Data: l}}}, Options{InlineThreshold: 1})
	require.NoError(t, err)
	data := make([]byte, p.DataLen)
	require.NoError(t, p.CopyTo(data))
	input := len(p.Metadata) + len(data)
	got := alloctest.Bytes(func() {
		m, _, err := ParseMetadata(p.Metadata)
		require.NoError(t, err)
		require.Len(t, m.Lens, 1+n)
		v, err := DecodeValue(m, data, Options{})
		require.NoError(t, err)
		require.Len(t, v.(*Item).Elems[0].Data, n)
	})
	require.Less(t, got, uint64(multiple*input))
	t.Logf("%.1f bytes for each byte", float64(got)/float64(input))
}

// TestNoShorterReference: the shortest array that refers to a frame is what the
// bound on frames counts with, also under the names that only Python knows.
func TestNoShorterReference(t *testing.T) {
	names := slices.Collect(maps.Keys(dtypes))
	names = append(names, slices.Collect(maps.Keys(aliases))...)
	for _, name := range names {
		e := codec.NewEncoder(codec.DefaultThreshold)
		e.Head(name, []int{})
		e.Int(1)
		require.NoError(t, e.Err())
		require.GreaterOrEqual(t, e.Len(), 7, name)
	}
}
