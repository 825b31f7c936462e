package serde

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/stretchr/testify/require"
)

func TestGoldenItems(t *testing.T) {
	for _, f := range golden(t, "serde") {
		f.each(t, func(t *testing.T, o Options) {
			checked, skipped := 0, map[string]int{}
			for _, r := range rows[struct {
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
			report(t, f, checked, skipped)
		})
	}
}

func TestGoldenDTypes(t *testing.T) {
	for _, f := range golden(t, "serde") {
		f.each(t, func(t *testing.T, o Options) {
			list := rows[struct {
				DType     string
				Itemsize  int
				Roundtrip bool
				gEncoded
			}](t, f, "dtypes")
			for _, r := range list {
				d := DType(r.DType)
				require.Equal(t, r.Itemsize, d.ItemSize(), d)
				require.True(t, r.Roundtrip)
				data := seq(2*r.Itemsize, 5, 1)
				if d == DTypeBool {
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
			require.Len(t, dtypes, len(list))
			report(t, f, len(list), nil)
		})
	}
}

func TestGoldenTensors(t *testing.T) {
	for _, f := range golden(t, "serde") {
		f.each(t, func(t *testing.T, o Options) {
			checked, skipped := 0, map[string]int{}
			for _, r := range rows[struct {
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
					n := int64(p.DataLen())
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
			report(t, f, checked, skipped)
		})
	}
}

func TestGoldenObjects(t *testing.T) {
	for _, f := range golden(t, "serde") {
		f.each(t, func(t *testing.T, o Options) {
			list := rows[struct {
				Name             string
				Frames, Metadata blob
				Nbytes           int64
				Len              int    `json:"chunk_payload_len"`
				Hash             string `json:"chunk_payload_sha256"`
			}](t, f, "objects")
			for _, r := range list {
				v := Pickle(r.Frames.raw)
				back := checkEncoded(t, r.Name, v, gEncoded{Nbytes: &r.Nbytes, Metadata: r.Metadata, Frames: []blob{r.Frames}, Len: r.Len, Hash: r.Hash}, o)
				require.Equal(t, v, back.(Pickle)[:len(v):len(v)])
			}
			report(t, f, len(list), nil)
		})
	}
}

// TestGoldenManyFrames covers metadata with up to 2002 lengths.
func TestGoldenManyFrames(t *testing.T) {
	for _, f := range golden(t, "serde") {
		f.each(t, func(t *testing.T, o Options) {
			list := rows[struct {
				Name           string
				Frames, Nbytes int
				Metadata, Main blob
			}](t, f, "misc")
			for _, r := range list {
				n, err := strconv.Atoi(strings.TrimPrefix(r.Name, "aux_"))
				require.NoError(t, err)
				l := make(List, n)
				for i := range l {
					l[i] = &Tensor{DTypeUint8, []int{256}, make([]byte, 256)}
				}
				it := &Item{Elems: []Elem{{Key: "n", Data: l}}}
				if o.Generation.ItemForm != pycompat.ItemMap {
					it.Modality = "image"
				}
				p, err := NewPlan(it, o)
				require.NoError(t, err)
				require.Len(t, p.Frames(), r.Frames)
				require.Equal(t, r.Nbytes, p.DataLen())
				r.Metadata.equal(t, p.Metadata(), r.Name)
				r.Main.equal(t, p.Frames()[0], r.Name)
				m, _, err := ParseMetadata(p.Metadata())
				require.NoError(t, err)
				require.Len(t, m.Lens, r.Frames)
				back, err := DecodeItem(p.Frames(), o)
				require.NoError(t, err)
				equalItem(t, it, back)
			}
			report(t, f, len(list), nil)
		})
	}
}

func TestGoldenNDArrays(t *testing.T) {
	cases := map[string]*NDArray{
		"f4":      {"<f4", []int{3}, []byte{0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
		"u1_256":  {"|u1", []int{256}, seq(256, 1, 0)},
		"u1_255":  {"|u1", []int{255}, seq(255, 1, 0)},
		"zero_d":  {"<f8", []int{}, []byte{0, 0, 0, 0, 0, 0, 4, 0x40}},
		"be":      {">i4", []int{2}, []byte{0, 0, 0, 0, 0, 0, 0, 1}},
		"fortran": {"<i8", []int{2, 3}, nil},
		"bool":    {"|b1", []int{2}, []byte{1, 0}},
		"str":     {"<U2", []int{2}, []byte{'a', 0, 0, 0, 'b', 0, 0, 0, 'c', 0, 0, 0, 0, 0, 0, 0}},
		"c8":      {"<c8", []int{1}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
		"empty":   {"<f2", []int{0, 3}, []byte{}},
	}
	for i := range 6 {
		cases["fortran"].Data = binary.LittleEndian.AppendUint64(cases["fortran"].Data, uint64(i))
	}
	for _, f := range golden(t, "serde") {
		f.each(t, func(t *testing.T, o Options) {
			checked, skipped := 0, map[string]int{}
			for _, r := range rows[struct {
				Name string
				gEncoded
			}](t, f, "ndarrays") {
				if r.Err != "" {
					skipped["raise in Python (dates, objects, numpy scalars)"]++
					continue
				}
				a := cases[r.Name]
				require.NotNil(t, a, r.Name)
				frames, err := EncodeNDArray(a, o)
				require.NoError(t, err, r.Name)
				require.Len(t, frames, len(r.Frames))
				for i, want := range r.Frames {
					want.equal(t, frames[i], r.Name)
				}
				back, err := DecodeNDArray(frames, o)
				require.NoError(t, err, r.Name)
				require.Equal(t, a.DType, back.DType)
				require.Equal(t, a.Shape, back.Shape)
				require.True(t, bytes.Equal(a.Data, back.Data))
				checked++
			}
			require.Equal(t, len(cases), checked)
			report(t, f, checked, skipped)
		})
	}
}
