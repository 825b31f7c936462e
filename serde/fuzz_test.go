package serde

import (
	"testing"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

func FuzzDecodeItem(f *testing.F) {
	corpus.Add(f, "item")
	for form, frames := range samples(f) {
		f.Add(frames[0], byte(form-1), uint16(300))
	}
	f.Add([]byte("\x80"), byte(2), uint16(0))
	f.Add([]byte("\x93\xa5uint8\x91\x04\xd6\x031234"), byte(2), uint16(0))
	f.Add([]byte("\x81\xa1x\x82\xa4data\x93\xa5uint8\x91\x04\x01\xa5field\x92\xa6shared\x81\xaabatch_size\x01"), byte(2), uint16(4))
	forms := goldentest.ItemForms()
	f.Fuzz(func(t *testing.T, doc []byte, form byte, n uint16) {
		o := Options{Generation: forms[int(form)%len(forms)]}
		frames := [][]byte{doc, make([]byte, n), make([]byte, 400)}
		decodeAll(t, frames, o)
		decodeAll(t, frames[:2], o)
		decodeAll(t, frames[:1], o)
		for _, fr := range [][][]byte{frames, frames[:2], frames[:1]} {
			it, err := DecodeItem(fr, o)
			if err != nil {
				continue
			}
			// What is accepted can be written, and is then read the same.
			p, err := NewPlan(it, o)
			if err != nil {
				if it.Modality == "" && o.Generation.ItemForm != pycompat.ItemMap {
					continue
				}
				t.Fatal(err)
			}
			back, err := DecodeItem(p.Frames(), o)
			if err != nil {
				t.Fatal(err)
			}
			equalItem(t, it, back)
		}
	})
}
