package serde

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/internal/alloctest"
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/msgpackguard"
	"github.com/ringcache/ringcache/pycompat"
)

// A few bytes that declare a lot must not make a decoder allocate for it.
func TestBombs(t *testing.T) {
	wrap := func(prefix, bomb string) []byte { return []byte(prefix + bomb) }
	bombs := []string{
		"\xdd\x02\x00\x00\x00", "\xdf\x02\x00\x00\x00", "\xdb\x02\x00\x00\x00", "\xc6\x02\x00\x00\x00", "\xc9\x02\x00\x00\x00\x03",
		"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x03",
	}
	prefixes := []string{
		"", "\x81", "\x81\xa1x\x82", "\x81\xa1x\x82\xa4data", "\x81\xa1x\x82\xa4data\x93\xa5uint8", "\x81\xa1x\x82\xa4data\x93\xa5uint8\x91\x01",
		"\x81\xa1x\x82\xa4data\xc0\xa5field", "\x81\xa1x\x82\xa4data\xc0\xa5field\x92\xa4flat\x81\xa6slices", "\x81\xa1x\x82\xa4data\xc0\xa5field\x92\xa4flat\x81\xa6slices\x91",
		"\x91", "\x91\x85", "\x81\xa4data", "\x81\xa3new", "\x93\xa3<f4",
	}
	const limit = 64 << 10
	for _, p := range prefixes {
		for _, b := range bombs {
			for _, g := range goldentest.ItemForms() {
				o := Options{Generation: g}
				f := [][]byte{wrap(p, b)}
				require.Less(t, alloctest.Bytes(func() { decodeAll(t, f, o) }), uint64(limit), "%q %q", p, b)
			}
		}
	}
	meta := AppendMetadata(nil, Metadata{typeItem, 2, []int64{1, 1}})
	binary.LittleEndian.PutUint64(meta[3:], 1<<62)
	require.Less(t, alloctest.Bytes(func() { _, _, _ = ParseMetadata(meta) }), uint64(limit))
	require.Less(t, alloctest.Bytes(func() { _, _, _ = ParseMetadata([]byte("\x80\x05X\xff\xff\xff\x7fabc")) }), uint64(limit))
}

// What a decoder allocates is a small multiple of the document also where the
// document is as dense as it can be.
func TestDenseDocuments(t *testing.T) {
	const n, multiple = 1 << 18, 80
	dense := func(head string, unit string) []byte {
		k := n / len(unit)
		b := append([]byte(head), 0xdd, 0, 0, 0, 0)
		binary.BigEndian.PutUint32(b[len(b)-4:], uint32(k))
		b = append(b, bytes.Repeat([]byte(unit), k)...)
		return b
	}
	data, field := "\x81\xa1x\x82\xa4data", "\xa5field\x92\xa7batched\x80"
	for name, doc := range map[string][]byte{
		"integers":     append(dense(data, "\x01"), field...),
		"big integers": append(dense(data, "\xd1\x80\x00"), field...),
		"empty lists":  append(dense(data, "\x90"), field...),
		"lists of one": append(dense(data, "\x91\x01"), field...),
		"tensors":      append(dense(data, "\x93\xa3int\x91\x00\xc7\x00\x03"), field...),
		"slices":       dense("\x81\xa1x\x82\xa4data\xc0\xa5field\x92\xa4flat\x81\xa6slices", "\x93\xc0\xc0\xc0"),
		"set slices":   dense("\x81\xa1x\x82\xa4data\xc0\xa5field\x92\xa4flat\x81\xa6slices", "\x93\x01\x02\x03"),
		"slice lists":  dense("\x81\xa1x\x82\xa4data\xc0\xa5field\x92\xa4flat\x81\xa6slices", "\x90"),
	} {
		var err error
		got := alloctest.Bytes(func() { _, err = DecodeItem([][]byte{doc}, Options{}) })
		require.NoError(t, err, name)
		require.Less(t, got, uint64(multiple*len(doc)), name)
		t.Logf("%s: %.1f bytes for each byte", name, float64(got)/float64(len(doc)))
	}
	lens := AppendMetadata(nil, Metadata{typeItem, 0, make([]int64, n)})
	got := alloctest.Bytes(func() { _, _, _ = ParseMetadata(lens) })
	require.Less(t, got, uint64(32*len(lens)))
}

// The decoder takes positions from its reader. That is sound only while the
// msgpack decoder does not read ahead of what it is asked for.
func TestMsgpackDecoderDoesNotReadAhead(t *testing.T) {
	doc := []byte("\x82\xa1x\xc7\x04\x03abcd\x92\xcf\x00\x00\x00\x00\x00\x00\x00\x01\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\xc3")
	r := bytes.NewReader(doc)
	d := msgpack.GetDecoder()
	d.Reset(r)
	at := func(want int) { t.Helper(); require.Equal(t, want, len(doc)-r.Len()) }
	_, err := d.PeekCode()
	require.NoError(t, err)
	at(0)
	_, err = d.DecodeMapLen()
	require.NoError(t, err)
	at(1)
	n, err := d.DecodeBytesLen()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	at(2)
	_, err = r.Seek(1, 1)
	require.NoError(t, err)
	_, n, err = d.DecodeExtHeader()
	require.NoError(t, err)
	require.Equal(t, 4, n)
	at(6)
	_, err = r.Seek(4, 1)
	require.NoError(t, err)
	_, err = d.DecodeArrayLen()
	require.NoError(t, err)
	at(11)
	_, err = d.DecodeUint64()
	require.NoError(t, err)
	at(20)
	_, err = d.DecodeFloat64()
	require.NoError(t, err)
	at(29)
	_, err = d.DecodeBool()
	require.NoError(t, err)
	at(30)
}

// Views alias the frames and are capped, so that append cannot run over.
func TestDecodeIsZeroCopy(t *testing.T) {
	f := samples(t)[pycompat.ItemMap]
	it, err := DecodeItem(f, Options{})
	require.NoError(t, err)
	inline, aux := it.Elems[0].Data.(*Tensor), it.Elems[1].Data.(*Tensor)
	require.Same(t, &f[1][0], &aux.Data[0])
	inline.Data[0] = 9
	again, err := DecodeItem(f, Options{})
	require.NoError(t, err)
	require.EqualValues(t, 9, again.Elems[0].Data.(*Tensor).Data[0])
	require.Equal(t, len(inline.Data), cap(inline.Data))
	require.Equal(t, len(aux.Data), cap(aux.Data))
}

// Guard and decoder agree on where a document ends.
func TestGuardMatchesDecoder(t *testing.T) {
	for _, f := range samples(t) {
		require.NoError(t, msgpackguard.Check(f[0], msgpackguard.Limits{}))
		require.NoError(t, msgpack.NewDecoder(bytes.NewReader(f[0])).Skip())
	}
}

// Should a peer change the document behind the guard, the lengths of nested
// lists still cannot add up to more than the document.
func TestNestedLengthsShareOneBudget(t *testing.T) {
	doc := []byte("\x81\xa1x\x82\xa4data")
	const n = 1 << 18
	for range codec.MaxDepth {
		doc = append(doc, 0xdd, 0, 4, 0, 0) // n elements
	}
	doc = append(doc, bytes.Repeat([]byte{1}, n)...)
	got := alloctest.Bytes(func() {
		_, err := codec.DecodeUnguarded([][]byte{doc}, func(d *codec.Decoder) (*Item, error) { return (&decoder{d, pycompat.Newest(), newMemory()}).item() })
		corrupt(t, err, `data of elem "x" at byte`)
	})
	// 16 for the budget and, as the innermost list grows without, 80 for append;
	// each list for itself would make 1000.
	require.Less(t, got, uint64(128*len(doc)))
}
