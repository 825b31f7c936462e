package mmhash

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

// goldenCase is one call of hash_kwargs.
type goldenCase struct {
	Name      string
	In        json.RawMessage
	Stream    json.RawMessage
	StreamLen int    `json:"stream_len"`
	DigestLen int    `json:"digest_len"`
	BuildErr  string `json:"build_error"`
	BLAKE3    string
	SHA256    string
	SHA512    string
	Err, Msg  string
}

// inexpressible are inputs that only Python has; vLLM raises for them.
var inexpressible = map[string]string{
	"t_requires_grad": "raise in Python and cannot be expressed (a tensor that requires grad)",
}

// scalarPickles are what numpy 2.3.5 under CPython 3.11 makes of its scalars.
var scalarPickles = map[string]string{
	"npscalar_f4": "80049566000000000000008c166e756d70792e5f636f72652e6d756c74696172726179948c067363616c61729493948c056e756d7079948c0564747970659493948c02663494898887945294284b038c013c944e4e4e4affffffff4affffffff4b0074946243040000c03f94869452942e",
	"npscalar_i8": "8004956a000000000000008c166e756d70792e5f636f72652e6d756c74696172726179948c067363616c61729493948c056e756d7079948c0564747970659493948c02693894898887945294284b038c013c944e4e4e4affffffff4affffffff4b007494624308030000000000000094869452942e",
	"npscalar_u1": "80049563000000000000008c166e756d70792e5f636f72652e6d756c74696172726179948c067363616c61729493948c056e756d7079948c0564747970659493948c02753194898887945294284b038c017c944e4e4e4affffffff4affffffff4b0074946243010394869452942e",
	"npscalar_b":  "80049563000000000000008c166e756d70792e5f636f72652e6d756c74696172726179948c067363616c61729493948c056e756d7079948c0564747970659493948c02623194898887945294284b038c017c944e4e4e4affffffff4affffffff4b0074946243010194869452942e",
}

// goldenArgs builds the arguments that a case describes.
func goldenArgs(t testing.TB, c goldenCase, g *pycompat.Generation) ([]Entry, error) {
	t.Helper()
	var args []Entry
	for _, e := range object(t, c.In) {
		switch e.key {
		case "nondeterministic", "skip_stream", "call_order":
			continue // notes of the generator
		}
		v, err := goldenValue(t, c.Name, e.raw, g)
		if err != nil {
			return nil, err
		}
		args = append(args, arg(e.key, v))
	}
	return args, nil
}

type member struct {
	key string
	raw json.RawMessage
}

// object reads a JSON object in its own order.
func object(t testing.TB, raw json.RawMessage) []member {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	_, err := d.Token()
	require.NoError(t, err)
	var out []member
	for d.More() {
		k, err := d.Token()
		require.NoError(t, err)
		var v json.RawMessage
		require.NoError(t, d.Decode(&v))
		out = append(out, member{k.(string), v})
	}
	return out
}

// goldenJSON is a value that JSON has no form for. A member is as in the files.
type goldenJSON struct {
	Bytes, Int, Float, NDArray, Tensor, NPScalar *string
	Shape                                        []int
	COrder                                       string            `json:"bytes_c_order"`
	Dict                                         []json.RawMessage // pairs
	PIL                                          *struct {
		Mode    string
		Size    [2]int
		AsArray struct{ Bytes string }
		Palette *struct{ Type, Bytes, RawMode string }
	}
	Media    json.RawMessage `json:"media_with_bytes"`
	Original string          `json:"original_bytes"`
	IOConfig json.RawMessage `json:"io_config"`
}

// goldenID is the UUID in the EXIF data of some images.
var goldenID = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func goldenValue(t testing.TB, name string, raw json.RawMessage, g *pycompat.Generation) (any, error) {
	t.Helper()
	switch c := bytes.TrimSpace(raw)[0]; c {
	case 'n':
		return nil, nil
	case 't', 'f':
		return c == 't', nil
	case '"':
		var s string
		require.NoError(t, json.Unmarshal(raw, &s))
		switch {
		case name == "bytearray":
			return Pickled(pickleByteArray([]byte{1, 2})), nil
		case name == "pil_exif_uuid" && strings.HasPrefix(s, "PIL"):
			return &Image{Mode: "L", Width: 1, Height: 1, Pixels: []byte{5}, ID: &goldenID}, nil
		}
		return s, nil
	case '[':
		var parts []json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &parts))
		out := []any{}
		for _, p := range parts {
			v, err := goldenValue(t, name, p, g)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case '{':
		return goldenObject(t, name, raw, g)
	}
	return json.Number(raw), nil
}

func goldenObject(t testing.TB, name string, raw json.RawMessage, g *pycompat.Generation) (any, error) {
	t.Helper()
	var j goldenJSON
	require.NoError(t, json.Unmarshal(raw, &j))
	unhex := func(s string) []byte { return goldentest.Hex(t, s) }
	switch {
	case j.NDArray != nil && j.Media == nil:
		data := j.COrder
		return &Array{*j.NDArray, j.Shape, unhex(data)}, nil
	case j.Tensor != nil:
		data := ""
		for _, m := range object(t, raw) {
			if m.key == "bytes" {
				require.NoError(t, json.Unmarshal(m.raw, &data))
			}
		}
		return &Tensor{*j.Tensor, j.Shape, unhex(data)}, nil
	case j.Media != nil:
		return goldenMedia(t, j, g), nil
	case j.Bytes != nil:
		return unhex(*j.Bytes), nil
	case j.Int != nil:
		return json.Number(*j.Int), nil
	case j.Float != nil:
		return (math.Float64frombits(binary.BigEndian.Uint64(unhex(*j.Float)))), nil
	case j.NPScalar != nil:
		if p, ok := scalarPickles[name]; ok {
			return Pickled(unhex(p)), nil
		}
		require.Equal(t, "npscalar_f8", name)
		return 1.5, nil // a subclass of float
	case j.PIL != nil:
		m := &Image{Mode: j.PIL.Mode, Width: j.PIL.Size[0], Height: j.PIL.Size[1], Pixels: unhex(j.PIL.AsArray.Bytes)}
		if p := j.PIL.Palette; p != nil {
			require.Contains(t, []string{"bytes", "list", "bytearray"}, p.Type)
			m.Palette = &Palette{p.Type, unhex(p.Bytes), p.RawMode}
		}
		return m, nil
	case j.Dict != nil:
		return goldenDict(t, name, j.Dict, g)
	}
	t.Fatalf("%s: unexpected %s", name, raw)
	return nil, nil
}

func goldenDict(t testing.TB, name string, pairs []json.RawMessage, g *pycompat.Generation) ([]Entry, error) {
	t.Helper()
	out := []Entry{}
	for _, raw := range pairs {
		var pair [2]json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &pair))
		var k string
		require.NoError(t, json.Unmarshal(pair[0], &k))
		k, _, _ = strings.Cut(k, " (int key") // a note of the generator
		v, err := goldenValue(t, name, pair[1], g)
		if err != nil {
			return nil, err
		}
		out = append(out, Entry{k, v})
	}
	return out, nil
}

// goldenMedia builds MediaWithBytes. Of a video, releases that never make one
// hash the pickle.
func goldenMedia(t testing.TB, j goldenJSON, g *pycompat.Generation) any {
	t.Helper()
	original := goldentest.Hex(t, j.Original)
	frames := goldenJSON{}
	if json.Unmarshal(j.Media, &frames) == nil {
		require.Equal(t, "|u1", *frames.NDArray)
		if g.Hash.VideoBytes {
			return &EncodedVideo{Data: original, Frames: &Array{"|u1", frames.Shape, goldentest.Hex(t, *frames.Bytes)}}
		}
		return Pickled(pickledMedia(g, pickledFrames(goldentest.Hex(t, *frames.Bytes)), original))
	}
	var what string
	require.NoError(t, json.Unmarshal(j.Media, &what))
	switch {
	case strings.HasPrefix(what, "image"):
		m := &EncodedImage{Data: original}
		if strings.Contains(what, "EXIF") {
			m.ID = &goldenID
		}
		if j.IOConfig != nil {
			v, err := goldenObject(t, "", j.IOConfig, g)
			require.NoError(t, err)
			m.IOConfig = v.([]Entry)
		}
		return m
	case strings.HasPrefix(what, "torch"):
		v := &Tensor{DType: "uint8", Shape: []int{2, 2, 2, 3}}
		for i := range 24 {
			v.Data = append(v.Data, byte(i))
		}
		return &EncodedVideo{Data: original, Frames: v}
	}
	require.Contains(t, what, "python str")
	return Pickled(pickledMedia(g, "\x8c\x01s\x94", original))
}

// pickledMedia is the pickle of a MediaWithBytes of something.
func pickledMedia(g *pycompat.Generation, media string, original []byte) string {
	module, config := "vllm.multimodal.media.base", ""
	if !g.Hash.Algorithms {
		module = "vllm.multimodal.base"
	}
	if g.Hash.IOConfig {
		config = "\x8c\x09io_config\x94N"
	}
	body := "\x8c" + string(byte(len(module))) + module + "\x94\x8c\x0eMediaWithBytes\x94\x93\x94)\x81\x94}\x94(" +
		"\x8c\x05media\x94" + media + "\x8c\x0eoriginal_bytes\x94C" + string([]byte{byte(len(original))}) + string(original) + "\x94" + config + "ub."
	return "\x80\x04\x95" + string(binary.LittleEndian.AppendUint64(nil, uint64(len(body)))) + body
}

// pickledFrames is the part of it that is an array of [2,2,2,3] bytes.
func pickledFrames(b []byte) string {
	return "\x8c\x16numpy._core.multiarray\x94\x8c\x0c_reconstruct\x94\x93\x94\x8c\x05numpy\x94\x8c\x07ndarray\x94\x93\x94K\x00\x85\x94" +
		"C\x01b\x94\x87\x94R\x94(K\x01(K\x02K\x02K\x02K\x03t\x94h\t\x8c\x05dtype\x94\x93\x94\x8c\x02u1\x94\x89\x88\x87\x94R\x94" +
		"(K\x03\x8c\x01|\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94b\x89C" + string(byte(len(b))) + string(b) + "\x94t\x94b"
}
