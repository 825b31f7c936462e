package serde

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

func unhex(t testing.TB, s string) []byte { return goldentest.Hex(t, s) }

func seq(n, mul, add int) []byte { return goldentest.Sequence(n, mul, add) }

// longBlobs rebuilds what the files give by hash only.
var longBlobs = func() map[string][]byte {
	m := map[string][]byte{}
	add := func(b []byte) { m[goldentest.Sum(b)] = b }
	add(seq(1024, 3, 1))
	add(seq(70000, 3, 1))
	add(seq(70000, 7, 0))
	var transposed []byte // int32 arange(400).view(20,20).t()
	for c := range 20 {
		for r := range 20 {
			transposed = binary.LittleEndian.AppendUint32(transposed, uint32(20*r+c))
		}
	}
	add(transposed)
	return m
}()

type gElem struct {
	Key   string
	Data  json.RawMessage
	Field struct {
		Kind      string
		KeepOnCPU bool `json:"keep_on_cpu"`
		Dim       int
		BatchSize int `json:"batch_size"`
		Slices    []json.RawMessage
	}
}

// goldenData builds data from its description; ok is false for what the type
// system here cannot express.
func goldenData(t *testing.T, j json.RawMessage) (d any, ok bool) {
	t.Helper()
	s := string(j)
	switch {
	case s == "null":
		return nil, true
	case s == "true", s == "false":
		return bool(s == "true"), true
	case s[0] == '"':
		return nil, false
	case s[0] == '[':
		var l []json.RawMessage
		require.NoError(t, json.Unmarshal(j, &l))
		out := []any{}
		for _, e := range l {
			d, ok := goldenData(t, e)
			if !ok {
				return nil, false
			}
			out = append(out, d)
		}
		return out, true
	case s[0] == '{':
		var m struct {
			Tensor  string
			Shape   []int
			Bytes   goldentest.Blob
			Float   string
			Ndarray string
			Repr    string
		}
		require.NoError(t, json.Unmarshal(j, &m))
		if m.Ndarray != "" || m.Repr != "" {
			return nil, false
		}
		if m.Float != "" {
			return float64(math.Float64frombits(binary.BigEndian.Uint64(unhex(t, m.Float)))), true
		}
		data := m.Bytes.Raw
		if data == nil {
			data = longBlobs[m.Bytes.Hash]
			require.NotNil(t, data, "unknown goldentest.Blob %s", m.Bytes.Hash)
		}
		return &Tensor{DType: DType(m.Tensor), Shape: m.Shape, Data: data}, true
	default:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, true
		}
		u, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return u, true
	}
}

func goldenSlice(t *testing.T, j json.RawMessage) Slice {
	var v struct{ Slice [3]*int64 }
	require.NoError(t, json.Unmarshal(j, &v))
	return Slice{v.Slice[0], v.Slice[1], v.Slice[2]}
}

func goldenItem(t *testing.T, elems []gElem, form pycompat.ItemForm) (*Item, bool) {
	t.Helper()
	it := &Item{Elems: []Elem{}}
	if form != pycompat.ItemMap {
		it.Modality = "image"
	}
	for _, g := range elems {
		d, ok := goldenData(t, g.Data)
		if !ok {
			return nil, false
		}
		f := Field{KeepOnCPU: g.Field.KeepOnCPU, Dim: g.Field.Dim, BatchSize: g.Field.BatchSize}
		switch g.Field.Kind {
		case "batched":
		case "flat":
			f.Kind = Flat
			for _, s := range g.Field.Slices {
				if s[0] == '{' {
					f.Slices = append(f.Slices, []Slice{goldenSlice(t, s)})
					continue
				}
				f.Nested = true
				var l []json.RawMessage
				require.NoError(t, json.Unmarshal(s, &l))
				var inner []Slice
				for _, x := range l {
					inner = append(inner, goldenSlice(t, x))
				}
				f.Slices = append(f.Slices, inner)
			}
		case "shared":
			f.Kind = Shared
		default:
			t.Fatalf("field kind %q", g.Field.Kind)
		}
		it.Elems = append(it.Elems, Elem{g.Key, d, f})
	}
	return it, true
}

type gEncoded struct {
	Nbytes   *int64
	Metadata goldentest.Blob
	Frames   []goldentest.Blob
	Len      int    `json:"chunk_payload_len"`
	Hash     string `json:"chunk_payload_sha256"`
	Err, Msg string
}

// checkEncoded encodes v, compares with the golden row and decodes it back.
func checkEncoded(t *testing.T, name string, v Value, g gEncoded, o Options) Value {
	t.Helper()
	p, err := NewPlan(v, o)
	require.NoError(t, err, name)
	frames := p.Frames()
	require.Len(t, frames, len(g.Frames), name)
	for i, f := range g.Frames {
		f.Equal(t, frames[i], name+" frame "+strconv.Itoa(i))
	}
	if g.Nbytes == nil {
		return nil
	}
	require.EqualValues(t, *g.Nbytes, p.DataLen, name)
	require.Len(t, bytes.Join(frames, nil), p.DataLen, name)
	g.Metadata.Equal(t, p.Metadata, name+" metadata")

	chunk := append(make([]byte, 4), p.Metadata...)
	head := len(chunk)
	chunk = append(chunk, make([]byte, p.DataLen)...)
	require.NoError(t, p.CopyTo(chunk[head:]))
	if g.Hash != "" {
		require.Equal(t, g.Len, len(chunk), name)
		require.Equal(t, g.Hash, goldentest.Sum(chunk), name)
	}
	m, n, err := ParseMetadata(chunk[4:])
	require.NoError(t, err, name)
	require.Equal(t, len(p.Metadata), n)
	back, err := DecodeValue(m, chunk[int64(len(chunk))-m.NBytes:], o)
	require.NoError(t, err, name)
	for i := range p.Tensors {
		pl := p.Tensors[i]
		at := head + pl.Offset
		require.Equal(t, pl.Tensor.Data, chunk[at:at+pl.Len:at+pl.Len], name)
	}
	return back
}
