package mmhash

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// keyFile is testdata/keys.json, which keys.py made by running released
// versions of vLLM. Keys are shortened to 24 digits.
type keyFile struct {
	Cases []struct {
		Modality             string
		Items                []string
		UUIDs                []*string
		Processor, Tokenizer json.RawMessage
		MediaIO              json.RawMessage `json:"media_io"`
	}
	Groups []struct {
		Releases []string
		Keys     []json.RawMessage
	}
}

// keyItem is an item of keys.py.
func keyItem(t testing.TB, name string) any {
	t.Helper()
	image := &Image{Mode: "L", Width: 1, Height: 1, Pixels: []byte{5}}
	switch name {
	case "image":
		return image
	case "file":
		return &EncodedImage{Data: []byte("JPEG"), Pixels: image}
	case "frames":
		a := &Array{DType: "|u1", Shape: []int{2, 2, 2, 3}}
		for i := range 24 {
			a.Data = append(a.Data, byte(i))
		}
		return []any{a, []Entry{{"fps", float64(2)}}}
	case "wave":
		return &Array{"<f4", []int{2}, []byte{0, 0, 0, 0x3f, 0, 0, 0x80, 0xbf}}
	case "chunk":
		return []Entry{{"type", "image"}, {"n", int64(1)}}
	}
	t.Fatalf("unknown item %q", name)
	return nil
}

// plain makes a value of JSON.
func plain(t testing.TB, raw json.RawMessage) any {
	t.Helper()
	switch raw[0] {
	case '{':
		m := []Entry{}
		for _, e := range object(t, raw) {
			m = append(m, Entry{e.key, plain(t, e.raw)})
		}
		return m
	case '[':
		var parts []json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &parts))
		l := []any{}
		for _, p := range parts {
			l = append(l, plain(t, p))
		}
		return l
	case '"', 't', 'f', 'n':
		v, err := goldenValue(t, "", raw, nil)
		require.NoError(t, err)
		return v
	}
	return json.Number(raw)
}

// TestGoldenKeys compares Key with what real releases give.
func TestGoldenKeys(t *testing.T) {
	b, err := os.ReadFile("testdata/keys.json")
	require.NoError(t, err)
	var f keyFile
	require.NoError(t, json.Unmarshal(b, &f))
	for _, group := range f.Groups {
		require.Len(t, group.Keys, len(f.Cases))
		for _, release := range group.Releases {
			t.Run(release, func(t *testing.T) {
				h, err := NewHasher(Options{Generation: generation(t, release)})
				require.NoError(t, err)
				keys, clashes := 0, 0
				for i, c := range f.Cases {
					var want []string
					raises := json.Unmarshal(group.Keys[i], &want) != nil
					for j, name := range c.Items {
						id := Identity{
							ModelID: "org/model", Modality: c.Modality, Item: keyItem(t, name), HasUUIDs: c.UUIDs != nil,
							ProcessorKwargs: plain(t, c.Processor).([]Entry), TokenizerKwargs: plain(t, c.Tokenizer).([]Entry),
							MediaIOKwargs: plain(t, c.MediaIO).([]Entry),
						}
						if c.UUIDs != nil && c.UUIDs[j] != nil {
							id.UUID = *c.UUIDs[j]
						}
						got, err := h.Key(id)
						if raises {
							require.ErrorIs(t, err, errInvalid)
							require.ErrorContains(t, err, "given twice")
							clashes++
							continue
						}
						require.NoError(t, err)
						require.Equal(t, want[j], got[:min(24, len(got))], "case %d: %s %s, %s", i, c.Modality, name, c.Processor)
						keys++
					}
				}
				require.Positive(t, keys)
				t.Logf("keys.json: %d keys, %d raise on both sides", keys, clashes)
			})
		}
	}
}

func TestKeyErrors(t *testing.T) {
	h, err := NewHasher(Options{})
	require.NoError(t, err)
	_, err = h.Key(Identity{ModelID: "m", Modality: "image"})
	requireInvalid(t, err, "image", "an item or a UUID is needed")
	_, err = h.Key(Identity{ModelID: "m", Modality: "model_id", Item: int64(1)})
	requireInvalid(t, err, "model_id", "given twice")
	// The file alone does not do where pixels are hashed.
	file := Identity{ModelID: "m", Modality: "image", Item: &EncodedImage{Data: []byte("JPEG")}}
	for version, uuids := range map[string]bool{"0.12.0": true, "0.13.0": false, "0.26.0": false} {
		t.Run("pixels/"+version, func(t *testing.T) {
			h, err := NewHasher(Options{Generation: generation(t, version)})
			require.NoError(t, err)
			file.HasUUIDs = uuids
			_, err = h.Key(file)
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, "Pixels")
		})
	}
	// An ID stands for the image in all of them.
	id := [16]byte{1}
	withID := Identity{ModelID: "m", Modality: "image", Item: &EncodedImage{Data: []byte("JPEG"), ID: &id}}
	for _, version := range []string{"0.12.0", "0.13.0", "0.27.1"} {
		t.Run("ID/"+version, func(t *testing.T) {
			o := Options{Generation: generation(t, version)}
			h, err := NewHasher(o)
			require.NoError(t, err)
			got, err := h.Key(withID)
			require.NoError(t, err)
			require.Equal(t, hexOf(t, o, arg("model_id", "m"), arg("image", id[:])), got)
		})
	}
}

func TestFalsyFactorsAreNone(t *testing.T) {
	h, err := NewHasher(Options{})
	require.NoError(t, err)
	for _, v := range []any{nil, []Entry{}, []any{}, "", []byte{}, false, 0, int64(0), uint64(0), float64(0), new(big.Int), json.Number("0"), json.Number("-0.0")} {
		t.Run(fmt.Sprintf("%T %v", v, v), func(t *testing.T) {
			key, err := h.Key(Identity{ModelID: "m", Modality: "image", UUID: "u", MediaIOKwargs: []Entry{{"image", v}}})
			require.NoError(t, err)
			require.Equal(t, "u", key)
		})
	}
	key, err := h.Key(Identity{ModelID: "m", Modality: "image", UUID: "u", MediaIOKwargs: []Entry{{"image", int64(1)}}})
	require.NoError(t, err)
	require.NotEqual(t, "u", key)
}

func TestRehash(t *testing.T) {
	h, err := NewHasher(Options{})
	require.NoError(t, err)
	got, err := h.Rehash("abc", arg("fps", float64(2)))
	require.NoError(t, err)
	require.Equal(t, hexOf(t, Options{}, arg("fps", float64(2)), arg("mm_hash", "abc")), got)
	_, err = h.Rehash("abc", arg("mm_hash", int64(1)))
	requireInvalid(t, err, "mm_hash", "given twice")
}
