package encoder_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

var tree = encoder.Tree{}

func sumOf(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// treeFile returns the file of an object.
func treeFile(t require.TestingT, l encoder.Tree, o tier.Object, data []byte) []byte {
	head, err := l.AppendHead(nil, o, sumOf(data))
	require.NoError(t, err)
	return append(head, data...)
}

func parseHead(name string, file []byte) (disk.Head, error) {
	return tree.ParseHead(name+"/encoder_cache.safetensors", bytes.NewReader(file), int64(len(file)))
}

// withoutSpace returns an object as files have it.
func withoutSpace(o tier.Object) tier.Object {
	o.Space = ""
	return o
}

type golden struct {
	Files []struct {
		Hash   string `json:"mm_hash"`
		DType  string `json:"torch_dtype"`
		Shape  []int
		Path   string `json:"relative_path"`
		Size   int    `json:"file_size"`
		Header string `json:"header_hex"`
		Data   string `json:"data_hex"`
	} `json:"example_connector_files"`
	Behaviour []struct {
		Case   string
		Header string
		Pad    int
		Data   int `json:"data_bytes"`
		Load   any
	} `json:"example_connector_behaviour"`
}

func readGolden(t *testing.T) (g golden) {
	b, err := os.ReadFile("testdata/example_connector.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &g))
	return g
}

// TestGoldenFilesOfConnector compares with files that the connector of vLLM 0.33.0 wrote.
func TestGoldenFilesOfConnector(t *testing.T) {
	compared := 0
	for _, f := range readGolden(t).Files {
		if f.Path == "" {
			continue // the connector could not save it
		}
		header, err := hex.DecodeString(f.Header)
		require.NoError(t, err)
		data := make([]byte, f.Size-len(header))
		if !strings.HasSuffix(f.Data, " bytes") {
			data, err = hex.DecodeString(f.Data)
			require.NoError(t, err)
		}
		file := append(bytes.Clone(header), data...)
		require.Len(t, file, f.Size)

		note := strings.TrimPrefix(f.DType, "torch.")
		for _, dim := range f.Shape {
			note += fmt.Sprint(" ", dim)
		}
		want := tier.Object{Key: tier.Key{Space: "gemma", Name: f.Hash}, Size: int64(len(data)), Note: []byte(note)}
		got, err := tree.ParseHead(f.Path, bytes.NewReader(file), int64(len(file)))
		require.NoError(t, err, f.Hash)
		require.Equal(t, disk.Head{Object: withoutSpace(want), Length: int64(len(header))}, got)

		path, err := tree.Path(want.Key)
		require.NoError(t, err)
		require.Equal(t, f.Path, path)
		require.Equal(t, file, treeFile(t, encoder.Tree{Plain: true}, want, data), f.Hash)
		compared++
	}
	require.Equal(t, 9, compared)
	t.Logf("%d files, no difference", compared)
}

// TestGoldenForeignFiles: what the connector loads is an object or foreign, what it can't load is no object.
func TestGoldenForeignFiles(t *testing.T) {
	compared := 0
	for _, c := range readGolden(t).Behaviour {
		if c.Header == "" {
			continue
		}
		file := []byte{byte(len(c.Header) + c.Pad), 0, 0, 0, 0, 0, 0, 0}
		file = append(file, c.Header...)
		file = append(file, strings.Repeat(" ", c.Pad)...)
		file = append(file, make([]byte, c.Data)...)
		_, err := parseHead("x", file)
		_, loads := c.Load.([]any)
		switch {
		case c.Case == "two_tensors" || c.Case == "other_name":
			require.ErrorIs(t, err, fs.ErrInvalid, c.Case)
			require.NotErrorIs(t, err, tier.ErrCorrupt, c.Case)
		case loads:
			require.NoError(t, err, c.Case)
		default:
			require.ErrorIs(t, err, tier.ErrCorrupt, c.Case)
			require.NotErrorIs(t, err, fs.ErrInvalid, c.Case)
		}
		compared++
	}
	require.Equal(t, 9, compared)
}

func TestTreePath(t *testing.T) {
	for _, name := range []string{"a", "lora:abc", strings.Repeat("x", 255), "a b", "...", ".a", "é", "a\nb", `a\b`} {
		p, err := tree.Path(tier.Key{Space: "gemma", Name: name})
		require.NoError(t, err)
		require.Equal(t, name+"/encoder_cache.safetensors", p)
	}
	for _, name := range []string{"", ".", "..", ".ringcache", "/", "a/b", "../a", "a/", "/a", strings.Repeat("x", 256), "a\x00", "\xff"} {
		_, err := tree.Path(tier.Key{Space: "gemma", Name: name})
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
		_, err = tree.ParseHead(name+"/encoder_cache.safetensors", failing{}, 100)
		require.ErrorIs(t, err, fs.ErrInvalid, "%q", name)
	}
	require.Equal(t, "vllm-ec", tree.Name())
	require.Equal(t, tree.Name(), encoder.Tree{Plain: true}.Name(), "a root can change from one to the other")
}

// TestStrangers: files that are none of the tree's are not even looked into.
func TestStrangers(t *testing.T) {
	for _, path := range []string{
		"", "encoder_cache.safetensors", "/encoder_cache.safetensors", "a", "a/", "a/.tmpAbCdEf", "a/encoder_cache.safetensors.tmp", "a/encoder_cache.safetensors/x",
		"a/b/encoder_cache.safetensors", "./encoder_cache.safetensors", "../encoder_cache.safetensors", ".ringcache/encoder_cache.safetensors", "a/Encoder_cache.safetensors",
	} {
		_, err := tree.ParseHead(path, failing{}, 1<<20)
		require.ErrorIs(t, err, fs.ErrInvalid, path)
		require.NotErrorIs(t, err, tier.ErrCorrupt, path)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestFailingDiskIsNoDamage(t *testing.T) {
	broken := errors.New("broken")
	_, err := tree.ParseHead("a/encoder_cache.safetensors", failing{broken}, 1<<20)
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, tier.ErrCorrupt)
	require.NotErrorIs(t, err, fs.ErrInvalid)
	_, err = tree.ParseHead("a/encoder_cache.safetensors", failing{io.EOF}, 1<<20)
	require.ErrorIs(t, err, tier.ErrCorrupt, "somebody has cut the file")
}

// TestFilesWithoutATensorOfTorch: safetensors has more types and shapes than torch.
func TestFilesWithoutATensorOfTorch(t *testing.T) {
	for _, c := range []struct {
		tensor string
		bytes  int
	}{
		{`"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]`, 3},
		{`"dtype":"F4","shape":[2,1],"data_offsets":[0,1]`, 1},
		{`"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]`, 0},
		{`"dtype":"U8","shape":[` + strings.Repeat("1,", 64) + `1],"data_offsets":[0,1]`, 1},
	} {
		head := `{"ec_cache":{` + c.tensor + `}}`
		file := append([]byte{byte(len(head)), byte(len(head) >> 8), 0, 0, 0, 0, 0, 0}, head...)
		_, err := parseHead("a", append(file, make([]byte, c.bytes)...))
		require.ErrorIs(t, err, fs.ErrInvalid, c.tensor)
		require.NotErrorIs(t, err, tier.ErrCorrupt, c.tensor)
	}
}

func TestLongHeadersAreStrangers(t *testing.T) {
	head := `{"ec_cache":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}` + strings.Repeat(" ", 1<<20)
	file := append([]byte{byte(len(head)), byte(len(head) >> 8), byte(len(head) >> 16), 0, 0, 0, 0, 0}, head...)
	_, err := parseHead("a", file)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NotErrorIs(t, err, tier.ErrCorrupt, "connectors load it")
}

var example = tier.Object{
	Key: tier.Key{Space: "gemma", Name: "abc"}, Size: 12, Parent: "\"\\\x01é", Tenant: "t", Cost: 1500 * time.Millisecond, Note: []byte("bfloat16 2 3"),
}

// TestTreeFile has the bytes of docs/format.md.
func TestTreeFile(t *testing.T) {
	o := example
	o.Parent = "abb"
	file := treeFile(t, tree, o, []byte("twelve bytes"))
	want := `{"__metadata__":{"ringcache.cost_ns":"1500000000","ringcache.crc32c":"f22af478","ringcache.head_crc32c":"d3245e8c","ringcache.parent":"abb","ringcache.tenant":"t"},` +
		`"ec_cache":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}`
	require.Equal(t, want, strings.TrimRight(string(file[8:len(file)-12]), " "))
	o = tier.Object{Key: o.Key, Note: []byte("float32 0 4")}
	file = treeFile(t, tree, o, nil)
	want = `{"__metadata__":{"ringcache.crc32c":"00000000","ringcache.head_crc32c":"8d70c500"},"ec_cache":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}}`
	require.Equal(t, want, strings.TrimRight(string(file[8:]), " "))
}

func TestTreeRoundTrip(t *testing.T) {
	dtypes := strings.Fields("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2")
	text := rapid.StringMatching(`[^\x00]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		n := encoder.Note{Shape: rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(t, "shape")}
		require.NoError(t, json.Unmarshal([]byte(`"`+rapid.SampledFrom(dtypes).Draw(t, "dtype")+`"`), &n.DType))
		if n.DType == "float4_e2m1fn_x2" && len(n.Shape) == 0 {
			return // torch has such a scalar, files have not
		}
		size, err := n.Size()
		require.NoError(t, err)
		o := tier.Object{
			Key: tier.Key{Space: "gemma", Name: "n" + strings.ReplaceAll(rapid.StringN(0, 20, 200).Draw(t, "name"), "/", "")}, Size: size,
			Parent: text.Draw(t, "parent"), Tenant: text.Draw(t, "tenant"), Cost: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cost")), Note: []byte(n.String()),
		}
		o.Name = strings.ReplaceAll(o.Name, "\x00", "")
		data := make([]byte, size)
		file := treeFile(t, tree, o, data)
		got, err := parseHead(o.Name, file)
		require.NoError(t, err)
		require.Equal(t, disk.Head{Object: withoutSpace(o), Length: int64(len(file)) - size, Sum: sumOf(data), HasSum: true}, got)

		other, err := tree.AppendHead([]byte("x"), o, math.MaxUint32)
		require.NoError(t, err)
		require.Len(t, other, len(file)-len(data)+1, "the length does not depend on the sum")

		file = treeFile(t, encoder.Tree{Plain: true}, o, data)
		got, err = parseHead(o.Name, file)
		require.NoError(t, err)
		require.Equal(t, disk.Head{Object: tier.Object{Key: tier.Key{Name: o.Name}, Size: size, Note: o.Note}, Length: int64(len(file)) - size}, got)
	})
}

func TestAppendHeadRefuses(t *testing.T) {
	for name, change := range map[string]func(o *tier.Object){
		"a space that is none":     func(o *tier.Object) { o.Space = "\x00" },
		"a name with a slash":      func(o *tier.Object) { o.Name = "a/b" },
		"no note":                  func(o *tier.Object) { o.Note = nil },
		"a note of something else": func(o *tier.Object) { o.Note = []byte("kv chunk") },
		"another size":             func(o *tier.Object) { o.Size++ },
		"a dtype without a name":   func(o *tier.Object) { o.Note = []byte("int4 12") },
		"complex128":               func(o *tier.Object) { o.Note, o.Size = []byte("complex128"), 16 },
		"a packed scalar":          func(o *tier.Object) { o.Note, o.Size = []byte("float4_e2m1fn_x2"), 1 },
		"too many packed elements": func(o *tier.Object) { o.Note, o.Size = []byte("float4_e2m1fn_x2 9223372036854775807"), math.MaxInt64 },
		"a parent that is no text": func(o *tier.Object) { o.Parent = "\xff" },
		"a tenant that is no text": func(o *tier.Object) { o.Tenant = "\xff" },
		"its own parent":           func(o *tier.Object) { o.Parent = o.Name },
		"a negative cost":          func(o *tier.Object) { o.Cost = -1 },
	} {
		o := example
		change(&o)
		b, err := tree.AppendHead([]byte("x"), o, 0)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		require.Equal(t, "x", string(b), name)
	}
}

// TestDamagedFiles flips every bit of a head and cuts at every byte.
func TestDamagedFiles(t *testing.T) {
	file := treeFile(t, tree, example, []byte("twelve bytes"))
	head, err := parseHead("abc", file)
	require.NoError(t, err)
	for n := range file {
		_, err := parseHead("abc", file[:n])
		require.ErrorIs(t, err, tier.ErrCorrupt, "cut to %d", n)
		_, err = tree.ParseHead("abc/encoder_cache.safetensors", bytes.NewReader(file[:n]), int64(len(file)))
		if n < int(head.Length) {
			require.ErrorIs(t, err, tier.ErrCorrupt, "cut to %d behind our back", n)
		}
		zeros := append(bytes.Clone(file[:n]), make([]byte, len(file)-n)...)
		if _, err = parseHead("abc", zeros); n < int(head.Length) && strings.Trim(string(file[n:head.Length]), " ") != "" {
			require.ErrorIs(t, err, tier.ErrCorrupt, "zeros from %d", n)
		}
	}
	_, err = parseHead("abc", append(bytes.Clone(file), 0))
	require.ErrorIs(t, err, tier.ErrCorrupt)
	for i := range 8 * int(head.Length) {
		damaged := bytes.Clone(file)
		damaged[i/8] ^= 1 << (i % 8)
		got, err := parseHead("abc", damaged)
		require.Error(t, err, "bit %d of byte %d %q: %+v", i%8, i/8, file[i/8], got)
		require.True(t, errors.Is(err, tier.ErrCorrupt) != errors.Is(err, fs.ErrInvalid), "%v", err)
	}
}

// TestFolderOfAnotherName: a description that was right for one key can be wrong for another.
func TestFolderOfAnotherName(t *testing.T) {
	o := example
	o.Parent = "parent"
	file := treeFile(t, tree, o, []byte("twelve bytes"))
	got, err := parseHead("renamed", file)
	require.NoError(t, err, "objects do not contain their names")
	require.Equal(t, "renamed", got.Object.Name)
	_, err = parseHead("parent", file)
	require.ErrorIs(t, err, tier.ErrCorrupt, "its own parent")
	require.NotErrorIs(t, err, fs.ErrInvalid)
}

// TestMetadataOfOthers are no checksum.
func TestMetadataOfOthers(t *testing.T) {
	for _, c := range []struct {
		metadata string
		corrupt  bool
	}{
		{`{}`, false},
		{`{"format":"pt","crc32c":"x","ringcache":"1"}`, false},
		{`{"ringcache.crc32c":"e8c1bfca"}`, true},
		{`{"ringcache.head_crc32c":"e8c1bfca"}`, true},
		{`{"ringcache.other":""}`, true},
	} {
		head := `{"__metadata__":` + c.metadata + `,"ec_cache":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}`
		file := append([]byte{byte(len(head)), 0, 0, 0, 0, 0, 0, 0}, head+"twelve bytes"...)
		got, err := parseHead("abc", file)
		if c.corrupt {
			require.ErrorIs(t, err, tier.ErrCorrupt, c.metadata)
			continue
		}
		require.NoError(t, err)
		require.False(t, got.HasSum)
	}
	// Another tool may have written our metadata again, in another order and form.
	file := treeFile(t, tree, example, []byte("twelve bytes"))
	text := strings.TrimRight(string(file[8:len(file)-12]), " ")
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(text), &fields))
	text = ` { "ec_cache" : ` + string(fields["ec_cache"]) + ` , "__metadata__" : ` + strings.ReplaceAll(string(fields["__metadata__"]), "é", `\u00e9`) + `}`
	again := append([]byte{byte(len(text)), byte(len(text) >> 8), 0, 0, 0, 0, 0, 0}, text+"twelve bytes"...)
	want, err := parseHead("abc", file)
	require.NoError(t, err)
	got, err := parseHead("abc", again)
	require.NoError(t, err)
	want.Length = got.Length
	require.Equal(t, want, got)
}

func FuzzTree(f *testing.F) {
	f.Add("abc/encoder_cache.safetensors", treeFile(f, tree, example, []byte("twelve bytes")))
	f.Add("abc/encoder_cache.safetensors", treeFile(f, encoder.Tree{Plain: true}, example, []byte("twelve bytes")))
	f.Add("a/b", []byte{})
	f.Fuzz(func(t *testing.T, path string, file []byte) {
		h, err := tree.ParseHead(path, bytes.NewReader(file), int64(len(file)))
		if err != nil {
			require.True(t, errors.Is(err, tier.ErrCorrupt) != errors.Is(err, fs.ErrInvalid), "%v", err)
			return
		}
		require.NoError(t, h.Object.Validate())
		require.Equal(t, int64(len(file)), h.Length+h.Object.Size)
		p, err := tree.Path(h.Object.Key)
		require.NoError(t, err)
		require.Equal(t, path, p)
		layout := encoder.Tree{Plain: !h.HasSum}
		again, err := layout.AppendHead(nil, h.Object, h.Sum)
		require.NoError(t, err, "what can be read can be written")
		length := int64(len(again))
		h2, err := tree.ParseHead(path, bytes.NewReader(append(again, file[h.Length:]...)), length+h.Object.Size)
		require.NoError(t, err)
		h.Length = length
		require.Equal(t, h, h2)
	})
}
