package serde

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

type goldenFile struct {
	goldentest.File
	data map[string]json.RawMessage
}

func golden(t *testing.T, section string) []goldenFile {
	t.Helper()
	var out []goldenFile
	for _, f := range goldentest.Files(t, section) {
		g := goldenFile{File: f}
		f.Decode(t, &g.data)
		out = append(out, g)
	}
	return out
}

// each runs fn for every release of the file.
func (f goldenFile) each(t *testing.T, fn func(t *testing.T, o Options)) {
	for _, r := range f.Releases {
		g, err := pycompat.Lookup(r)
		require.NoError(t, err)
		t.Run(r, func(t *testing.T) { fn(t, Options{Generation: g}) })
	}
}

func rows[T any](t *testing.T, f goldenFile, section string) []T {
	t.Helper()
	var out []T
	require.NoError(t, json.Unmarshal(f.data[section], &out))
	require.NotEmpty(t, out, "%s has no rows in %s", f.Name, section)
	return out
}

func unhex(t testing.TB, s string) []byte { return goldentest.Hex(t, s) }

// blob is a byte string, or its length and hash where it is long.
type blob struct {
	raw  []byte
	n    int
	hash string
}

func (b *blob) UnmarshalJSON(j []byte) error {
	if j[0] == '"' {
		raw, err := hex.DecodeString(strings.Trim(string(j), `"`))
		if raw == nil {
			raw = []byte{}
		}
		b.raw, b.n = raw, len(raw)
		return err
	}
	var v struct {
		Len    int
		Sha256 string
	}
	err := json.Unmarshal(j, &v)
	b.n, b.hash = v.Len, v.Sha256
	return err
}

func (b blob) equal(t *testing.T, got []byte, what string) {
	t.Helper()
	if b.raw != nil {
		require.Equal(t, hex.EncodeToString(b.raw), hex.EncodeToString(got), what)
		return
	}
	require.Equal(t, b.n, len(got), what)
	require.Equal(t, b.hash, sum(got), what)
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func seq(n, mul, add int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*mul + add)
	}
	return b
}

// longBlobs rebuilds what the files give by hash only.
var longBlobs = func() map[string][]byte {
	m := map[string][]byte{}
	add := func(b []byte) { m[sum(b)] = b }
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
func goldenData(t *testing.T, j json.RawMessage) (d Data, ok bool) {
	t.Helper()
	s := string(j)
	switch {
	case s == "null":
		return nil, true
	case s == "true", s == "false":
		return Bool(s == "true"), true
	case s[0] == '"':
		return nil, false
	case s[0] == '[':
		var l []json.RawMessage
		require.NoError(t, json.Unmarshal(j, &l))
		out := List{}
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
			Bytes   blob
			Float   string
			Ndarray string
			Repr    string
		}
		require.NoError(t, json.Unmarshal(j, &m))
		if m.Ndarray != "" || m.Repr != "" {
			return nil, false
		}
		if m.Float != "" {
			return Float(math.Float64frombits(binary.BigEndian.Uint64(unhex(t, m.Float)))), true
		}
		data := m.Bytes.raw
		if data == nil {
			data = longBlobs[m.Bytes.hash]
			require.NotNil(t, data, "unknown blob %s", m.Bytes.hash)
		}
		return &Tensor{DType: DType(m.Tensor), Shape: m.Shape, Data: data}, true
	default:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return Int(n), true
		}
		u, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return Uint(u), true
	}
}

func goldenSlice(t *testing.T, j json.RawMessage) Slice {
	var v struct{ Slice [3]*int64 }
	require.NoError(t, json.Unmarshal(j, &v))
	b := func(p *int64) Bound {
		if p == nil {
			return Bound{}
		}
		return At(*p)
	}
	return Slice{b(v.Slice[0]), b(v.Slice[1]), b(v.Slice[2])}
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
	Metadata blob
	Frames   []blob
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
		f.equal(t, frames[i], name+" frame "+strconv.Itoa(i))
	}
	if g.Nbytes == nil {
		return nil
	}
	require.EqualValues(t, *g.Nbytes, p.DataLen(), name)
	require.Equal(t, p.DataLen(), frames.Len(), name)
	g.Metadata.equal(t, p.Metadata(), name+" metadata")

	chunk := append(make([]byte, 4), p.Metadata()...)
	head := len(chunk)
	chunk = append(chunk, make([]byte, p.DataLen())...)
	require.NoError(t, p.CopyTo(chunk[head:]))
	if g.Hash != "" {
		require.Equal(t, g.Len, len(chunk), name)
		require.Equal(t, g.Hash, sum(chunk), name)
	}
	m, n, err := ParseMetadata(chunk[4:])
	require.NoError(t, err, name)
	require.Equal(t, len(p.Metadata()), n)
	back, err := DecodeValue(m, chunk[int64(len(chunk))-m.NBytes:], o)
	require.NoError(t, err, name)
	for i := range p.Tensors() {
		pl := p.Tensors()[i]
		at := head + pl.Offset
		require.Equal(t, pl.Tensor.Data, chunk[at:at+pl.Len:at+pl.Len], name)
	}
	return back
}

// report prints what was checked and skipped, and fails when nothing was.
func report(t *testing.T, f goldenFile, checked int, skipped map[string]int) {
	t.Helper()
	require.Positive(t, checked)
	var why []string
	for k, n := range skipped {
		why = append(why, strconv.Itoa(n)+" "+k)
	}
	slices.Sort(why)
	t.Logf("%s: %d checked, skipped: %s", f.Name, checked, strings.Join(append(why, "-"), "; "))
}
