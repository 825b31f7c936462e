package serde

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

// modalityItems is an entry of vLLM's MultiModalKwargsItems, a map from modality to
// items. Nothing of the product sends one, but vLLM's own vectors have several items and
// their frames in one document by it.
type modalityItems struct {
	Modality string
	Items    []*Item
}

func writeItems(e *encoder, k []modalityItems) {
	e.Map(len(k))
	for _, m := range k {
		e.Text(m.Modality)
		e.Array(len(m.Items))
		for _, it := range m.Items {
			e.item(it)
		}
	}
}

func readItems(d *decoder) (out []modalityItems, err error) {
	n, err := d.Map("items")
	if err != nil {
		return nil, err
	}
	for range n {
		var m modalityItems
		if m.Modality, err = d.Text("modality"); err != nil {
			return nil, err
		}
		k, err := d.Array("items")
		if err != nil {
			return nil, err
		}
		for range k {
			it, err := d.item()
			if err != nil {
				return nil, err
			}
			m.Items = append(m.Items, it)
		}
		out = append(out, m)
	}
	return out, nil
}

func TestGoldenItemsOfModalities(t *testing.T) {
	for _, f := range goldentest.Files(t, "requests") {
		f.Each(t, func(t *testing.T, g *pycompat.Generation) {
			o := Options{Generation: g}
			it := &Item{Elems: []Elem{{Key: "pixel_values", Data: &Tensor{"float32", []int{2, 3}, floats(0, 1, 2, 3, 4, 5)}}}}
			big := &Item{Elems: []Elem{{Key: "a", Data: &Tensor{"uint8", []int{300}, make([]byte, 300)}}}}
			if g.ItemForm != pycompat.ItemMap {
				it.Modality, big.Modality = "image", "image"
			}
			checked, skipped := 0, map[string]int{}
			for _, r := range goldentest.Rows[goldentest.Frames](t, f, "containers") {
				var k []modalityItems
				switch r.Name {
				case "items":
					k = []modalityItems{{"image", []*Item{it, it}}, {"audio", []*Item{big}}}
				case "items_in_map":
					k = []modalityItems{{"mm", []*Item{it}}}
				default:
					skipped["are no items (handshake)"]++
					continue
				}
				e, err := newEncoder(o)
				require.NoError(t, err)
				writeItems(e, k)
				got, err := e.Frames()
				require.NoError(t, err)
				r.Equal(t, got)
				back, err := decode(got, o, readItems)
				require.NoError(t, err)
				require.Len(t, back, len(k))
				for i := range k {
					require.Equal(t, k[i].Modality, back[i].Modality)
					require.Len(t, back[i].Items, len(k[i].Items))
					for j := range k[i].Items {
						equalItem(t, k[i].Items[j], back[i].Items[j])
					}
				}
				checked++
			}
			f.Report(t, checked, skipped)
		})
	}
}

func floats(list ...float32) (b []byte) {
	for _, f := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}
