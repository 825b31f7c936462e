package serde

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

func TestGoldenItems(t *testing.T) {
	for _, f := range goldentest.Files(t, "serde") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			o := Options{Generation: g}
			checked, skipped := 0, map[string]int{}
			for _, r := range goldentest.Rows[struct {
				Name string
				Item []gElem
				gEncoded
			}](t, f, "items") {
				it, ok := goldenItem(t, r.Item, o.Generation.ItemForm)
				if !ok || r.Err != "" {
					require.NotEmpty(t, r.Err, r.Name)
					skipped["raise in Python and cannot be expressed (str, numpy in data)"]++
					continue
				}
				back := checkEncoded(t, r.Name, it, r.gEncoded, o)
				equalItem(t, it, back.(*Item))
				equalItem(t, it, Clone(back).(*Item))
				checked++
			}
			f.Report(t, checked, skipped)
		})
	}
}

func TestGoldenDTypes(t *testing.T) {
	seen := map[DType]bool{} // a release may have dtypes that earlier ones lack
	for _, f := range goldentest.Files(t, "serde") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			o := Options{Generation: g}
			list := goldentest.Rows[struct {
				DType     string
				Itemsize  int
				Roundtrip bool
				gEncoded
			}](t, f, "dtypes")
			for _, r := range list {
				d := DType(r.DType)
				seen[d] = true
				require.Equal(t, r.Itemsize, d.ItemSize(), d)
				require.True(t, r.Roundtrip)
				data := seq(2*r.Itemsize, 5, 1)
				if d == "bool" {
					data = []byte{1, 0}
				}
				x := &Tensor{DType: d, Shape: []int{2}, Data: data}
				checkEncoded(t, r.DType, x, r.gEncoded, o)
				p, err := NewPlan(x, o)
				require.NoError(t, err)
				back, err := DecodeTensor(p.Frames(), o)
				require.NoError(t, err)
				require.True(t, equalTensor(x, back), d)
			}
			f.Report(t, len(list), nil)
		})
	}
	for d := range dtypes {
		require.True(t, seen[DType(d)], "no release has the dtype %s", d)
	}
}

func TestGoldenTensors(t *testing.T) {
	for _, f := range goldentest.Files(t, "serde") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			o := Options{Generation: g}
			checked, skipped := 0, map[string]int{}
			for _, r := range goldentest.Rows[struct {
				Name   string
				Tensor json.RawMessage
				gEncoded
			}](t, f, "tensors") {
				switch r.Name {
				case "conj", "sparse":
					require.NotEmpty(t, r.Err)
					skipped["raise in Python and cannot be expressed (conjugate view, sparse)"]++
					continue
				case "requires_grad":
					r.Tensor = json.RawMessage(`{"tensor":"float32","shape":[2],"bytes":"0000803f0000803f"}`)
				}
				d, ok := goldenData(t, r.Tensor)
				require.True(t, ok)
				if r.Name == "parameter" {
					// A subclass writes its own class name and cannot be read back.
					p, err := NewPlan(d.(*Tensor), o)
					require.NoError(t, err)
					n := int64(p.DataLen)
					m, _, err := ParseMetadata(AppendMetadata(nil, Metadata{"Parameter", n, []int64{n}}))
					require.NoError(t, err)
					_, err = DecodeValue(m, p.Frames()[0], o)
					require.EqualError(t, err, r.Msg)
					require.ErrorIs(t, err, ErrUnsupported)
					checked++
					continue
				}
				back := checkEncoded(t, r.Name, d.(*Tensor), r.gEncoded, o)
				require.True(t, equalData(d, back.(*Tensor)), r.Name)
				checked++
			}
			f.Report(t, checked, skipped)
		})
	}
}

func TestGoldenObjects(t *testing.T) {
	for _, f := range goldentest.Files(t, "serde") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			o := Options{Generation: g}
			list := goldentest.Rows[struct {
				Name             string
				Frames, Metadata goldentest.Blob
				Nbytes           int64
				Len              int    `json:"chunk_payload_len"`
				Hash             string `json:"chunk_payload_sha256"`
			}](t, f, "objects")
			for _, r := range list {
				v := Pickle(r.Frames.Raw)
				back := checkEncoded(t, r.Name, v, gEncoded{Nbytes: &r.Nbytes, Metadata: r.Metadata, Frames: []goldentest.Blob{r.Frames}, Len: r.Len, Hash: r.Hash}, o)
				require.Equal(t, v, back.(Pickle)[:len(v):len(v)])
			}
			f.Report(t, len(list), nil)
		})
	}
}

// TestGoldenManyFrames covers metadata with up to 2002 lengths.
func TestGoldenManyFrames(t *testing.T) {
	for _, f := range goldentest.Files(t, "serde") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			o := Options{Generation: g}
			list := goldentest.Rows[struct {
				Name           string
				Frames, Nbytes int
				Metadata, Main goldentest.Blob
			}](t, f, "misc")
			for _, r := range list {
				n, err := strconv.Atoi(strings.TrimPrefix(r.Name, "aux_"))
				require.NoError(t, err)
				l := make([]any, n)
				for i := range l {
					l[i] = &Tensor{"uint8", []int{256}, make([]byte, 256)}
				}
				it := &Item{Elems: []Elem{{Key: "n", Data: l}}}
				if o.Generation.ItemForm != pycompat.ItemMap {
					it.Modality = "image"
				}
				p, err := NewPlan(it, o)
				require.NoError(t, err)
				require.Len(t, p.Frames(), r.Frames)
				require.Equal(t, r.Nbytes, p.DataLen)
				r.Metadata.Equal(t, p.Metadata, r.Name)
				r.Main.Equal(t, p.Frames()[0], r.Name)
				m, _, err := ParseMetadata(p.Metadata)
				require.NoError(t, err)
				require.Len(t, m.Lens, r.Frames)
				back, err := DecodeItem(p.Frames(), o)
				require.NoError(t, err)
				equalItem(t, it, back)
			}
			f.Report(t, len(list), nil)
		})
	}
}
