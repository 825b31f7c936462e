package enginecore_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/internal/alloctest"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// What the messages of a hostile peer take is bounded as well.
func TestMessageBombs(t *testing.T) {
	fill := func(head, unit string, n int) []byte {
		b := append([]byte(head), 0xdd, 0, 0, 0, 0)
		binary.BigEndian.PutUint32(b[len(b)-4:], uint32(n/len(unit)))
		for range n / len(unit) {
			b = append(b, unit...)
		}
		return b
	}
	const n = 1 << 20
	p := newest(t)
	for _, doc := range [][]byte{
		fill("\x92\x00", "\x92\xa0\x90", n), fill("\x92\x00", "\x91\xa0", n), fill("\x92\x00", "\xc0", n), fill("\x92\x00", "\x92\xa0\xc0", n),
		fill("\x93\x00\x90", "\x81\xa0\xc0", n), fill("\x93\x00\x90", "\x80", n), fill("\x93\x00\x90", "\x90", n), fill("\x93\x00\x90", "\xcd\xff\xff", n),
		fill("\x95\x00\x90\xc0\x00\x93\x01\xc0\x92\xc0", "\x81\x01\x02", n), fill("\x96\x00\x90\xc0\x00\xc0", "\xa0", n),
		fill("\x91", "\x01", n), fill("\x94\x01\x02\xa1x", "\x81\xa0\xc0", n), fill("", "\xa0", n),
		fill("\x92\xa1r", "\x01", n), fill("\x93\xa1r\x90", "\x84\xa4data\xc0\xa8modality\xa0\xaaidentifier\xa0\xabmm_position\x82\xa6offset\x00\xa6length\x00", n),
		fill("\x94\xa1r\x90\xc0\xde\x00\x01\xa1x", "\x81\xa0\xc0", n), fill("\x95\xa1r\x90\xc0\xc0", "\x81\xa0\xc0", n),
	} {
		engine := func(kind byte) func() { return func() { _, _ = p.engine.Decode([][]byte{{kind}, doc}) } }
		for i, decode := range []func(){
			func() { _, _ = p.DecodeOutputs([][]byte{doc}) },
			func() { _, _ = enginecore.DecodeReady(doc) },
			func() { _, _ = enginecore.DecodeHandshake(doc) },
			func() { _, _ = wire.DecodeInit(doc) },
			engine(0), engine(1), engine(3),
		} {
			took := alloctest.Bytes(decode)
			// All that was ever allocated; slices that grow count several times.
			require.Less(t, took, uint64(150<<20), "%d: %q", i, doc[:min(len(doc), 40)])
		}
	}
	for _, b := range []string{"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff"} {
		for _, head := range []string{"", "\x92\x00", "\x92\x00\x91", "\x92\x00\x92\xa1r\x91", "\x81\xa6status", "\x92\xa1r", "\x94\xa1r\x90\xc0"} {
			doc := []byte(head + b)
			require.Less(t, alloctest.Bytes(func() {
				_, err := p.DecodeOutputs([][]byte{doc})
				require.ErrorContains(t, err, "main document")
				_, err = p.request(doc)
				require.ErrorContains(t, err, "main document")
			}), uint64(256<<10), "%q", doc)
		}
	}
}

// bombs are a few bytes each that declare a lot.
var bombs = []string{
	"\xdd\x02\x00\x00\x00", "\xdf\x02\x00\x00\x00", "\xdb\x02\x00\x00\x00", "\xc6\x02\x00\x00\x00", "\xc9\x02\x00\x00\x00\x03",
	"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x03",
}

// TestNDArrayBombs: an array allocates nothing for what is only declared, with the
// guard and without.
func TestNDArrayBombs(t *testing.T) {
	for _, head := range []string{"", "\x93", "\x93\xa3<f4", "\x93\xa3<f4\x91", "\x93\xa3<f4\x91\x01", "\x93\xa3<U9\x92\xce\x7f\xff\xff\xff\x01"} {
		for _, bomb := range bombs {
			f := [][]byte{[]byte(head + bomb), make([]byte, 4)}
			for name, decode := range map[string]func([][]byte) (*serde.NDArray, error){
				"guarded": enginecore.DecodeNDArray, "unguarded": enginecore.DecodeNDArrayUnguarded,
			} {
				var err error
				require.Less(t, alloctest.Bytes(func() { _, err = decode(f) }), uint64(16<<10), "%q %q, %s", head, bomb, name)
				require.Error(t, err)
				typed(t, err)
			}
		}
	}
	// The same inside an output, where an array is one of many values.
	p := newest(t)
	doc, err := p.engine.EncodeOutputs(&enginecore.Outputs{Outputs: []enginecore.Output{{RequestID: "r", Logprobs: []any{array4()}}}})
	require.NoError(t, err)
	at := bytes.Index(doc[0], []byte("\xa3<f4"))
	require.Positive(t, at)
	for _, bomb := range bombs {
		f := [][]byte{append(bytes.Clone(doc[0][:at+4]), bomb...)}
		require.Less(t, alloctest.Bytes(func() { _, err = p.DecodeOutputs(f) }), uint64(64<<10), "%q", bomb)
		corrupt(t, err, "main document at byte")
		require.Less(t, alloctest.Bytes(func() { _, err = p.DecodeOutputsUnguarded(f) }), uint64(64<<10), "%q", bomb)
		typed(t, err)
	}
}

func array4() *serde.NDArray {
	return &serde.NDArray{DType: "<f4", Shape: []int{1}, Data: []byte{0, 0, 0x80, 0x3f}}
}

// changed calls decode with a document cut at every byte, and with every bit of it
// turned over.
func changed(doc []byte, decode func(doc []byte, cut bool)) {
	for n := range doc {
		decode(doc[:n:n], true)
	}
	own := bytes.Clone(doc)
	for bit := range 8 * len(own) {
		own[bit/8] ^= 1 << (bit % 8)
		decode(own, false)
		own[bit/8] ^= 1 << (bit % 8)
	}
}

// TestDamagedNDArrays: cut at every byte they are refused, and with a bit turned over
// they are read as something else or refused.
func TestDamagedNDArrays(t *testing.T) {
	for _, a := range []*serde.NDArray{
		array4(), {DType: "|u1", Shape: []int{2, 150}, Data: make([]byte, 300)}, {DType: "<U2", Shape: []int{}, Data: make([]byte, 8)},
	} {
		f, err := newest(t).EncodeNDArray(a)
		require.NoError(t, err)
		changed(f[0], func(doc []byte, cut bool) {
			for _, decode := range []func([][]byte) (*serde.NDArray, error){enginecore.DecodeNDArray, enginecore.DecodeNDArrayUnguarded} {
				got, err := decode(append([][]byte{doc}, f[1:]...))
				typed(t, err)
				require.Equal(t, err == nil, got != nil)
				if cut {
					corrupt(t, err, "serde: corrupt ", "cut to %d bytes", len(doc))
				}
			}
		})
	}
}

// TestDamagedOutputs: the same for what an engine sends, which loses as little as it
// can and so may be read in part.
func TestDamagedOutputs(t *testing.T) {
	p := newest(t)
	f, err := p.engine.EncodeOutputs(&enginecore.Outputs{
		Outputs: []enginecore.Output{
			{RequestID: "r", NewTokenIDs: []uint32{1, 70000}, FinishReason: ptr(enginecore.FinishStop), Logprobs: []any{array4(), nil}, RoutedExperts: array4()},
			{RequestID: "s", PoolingOutput: &serde.Tensor{DType: "uint8", Shape: []int{300}, Data: make([]byte, 300)}, Events: []enginecore.Event{{Type: 1}}},
		},
		Answer: &enginecore.Answer{CallID: 7, Result: map[string]any{"a": []any{1.5}}}, FinishedRequests: []string{"r"},
	})
	require.NoError(t, err)
	changed(f[0], func(doc []byte, cut bool) {
		frames := append([][]byte{doc}, f[1:]...)
		m, err := p.DecodeOutputs(frames)
		typed(t, err)
		if cut {
			corrupt(t, err, "main document at byte", "cut to %d bytes", len(doc))
		}
		if m != nil {
			for _, err := range m.Unread {
				typed(t, err)
			}
			for i := range m.Outputs {
				typed(t, m.Outputs[i].Err)
			}
		}
		if len(doc) > 0 {
			_, err = p.DecodeOutputsUnguarded(frames)
			typed(t, err)
		}
	})
}

// TestDamagedRequests: and for a request with features, which is the engine's to read.
func TestDamagedRequests(t *testing.T) {
	for _, g := range goldentest.ItemForms() {
		p := newPair(t, g, 0)
		m, err := p.EncodeRequest(&enginecore.Request{
			RequestID: "r", PromptTokenIDs: []uint32{1, 2}, Features: goldenFeatures(p.gen.ItemForm), Params: p.sampling(t, map[string]any{"seed": 7}),
		})
		require.NoError(t, err)
		f := m.Frames()[1:]
		changed(f[0], func(doc []byte, cut bool) {
			_, err := p.request(append([][]byte{doc}, f[1:]...)...)
			typed(t, err)
			if cut {
				corrupt(t, err, "main document at byte", "cut to %d bytes", len(doc))
			}
		})
	}
}
