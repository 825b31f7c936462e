package enginecore_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// typed fails unless err is nil or of the kinds of package serde.
func typed(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, serde.ErrCorrupt) && !errors.Is(err, serde.ErrUnsupported) {
		t.Fatalf("untyped error %v", err)
	}
}

// TestGoldenOutputs shows that these encode to the bytes of the golden files.
var goldenOutputNames = []string{"one", "finish", "mm_miss", "error", "events", "pooling", "utility_none", "utility_true", "utility_fail", "wave", "start_wave"}

func FuzzDecodeOutputs(f *testing.F) {
	corpus.Add(f, "outputs")
	releases := pycompat.Releases()
	for i, g := range releases {
		for _, name := range goldenOutputNames {
			// Some are of newer releases only.
			if frames, err := newPair(f, g, 0).engine.EncodeOutputs(goldenOutputs(f, name)); err == nil {
				f.Add(frames[0], byte(i), uint16(300))
			}
		}
	}
	f.Fuzz(func(t *testing.T, doc []byte, i byte, n uint16) {
		p := newPair(t, releases[int(i)%len(releases)], 0)
		for _, fr := range [][][]byte{{doc}, {doc, make([]byte, n), make([]byte, 300), make([]byte, 24)}} {
			m, err := p.DecodeOutputs(fr)
			if errors.Is(err, enginecore.ErrEngineDead) {
				continue
			}
			typed(t, err)
			if len(doc) > 0 {
				_, err = p.DecodeOutputsUnguarded(fr)
				typed(t, err)
			}
			if m == nil {
				continue
			}
			for i := range m.Outputs {
				typed(t, m.Outputs[i].Err)
				for _, err := range m.Outputs[i].Unread {
					typed(t, err)
				}
			}
			out, err := p.engine.EncodeOutputs(m)
			require.NoError(t, err)
			back, err := p.DecodeOutputs(out)
			require.NoError(t, err)
			require.Empty(t, back.Unread)
			again, err := p.engine.EncodeOutputs(back)
			require.NoError(t, err)
			require.Equal(t, out, again)
		}
	})
}

// FuzzDecodeStart is for what an engine sends before its outputs.
func FuzzDecodeStart(f *testing.F) {
	corpus.Add(f, "start")
	f.Add([]byte("\x83\xa6status\xa5HELLO\xa5local\xc3\xa8headless\xc2"))
	b, err := newest(f).engine.EncodeReady(&enginecore.Ready{WorldSize: 2})
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, doc []byte) {
		h, err := enginecore.DecodeHandshake(doc)
		typed(t, err)
		if err == nil {
			b, err := wire.EncodeHandshake(h)
			require.NoError(t, err)
			back, err := enginecore.DecodeHandshake(b)
			require.NoError(t, err)
			require.Equal(t, h.Status, back.Status)
		}
		_, err = enginecore.DecodeReady(doc)
		typed(t, err)
	})
}

// FuzzDecodeNDArray reads arrays with and without the guard.
func FuzzDecodeNDArray(f *testing.F) {
	corpus.Add(f, "ndarray")
	f.Add([]byte("\x93\xa3<f4\x91\x01\xd6\x031234"), uint16(0))
	f.Add([]byte("\x93\xa3|u1\x91\x04\x01"), uint16(4))
	f.Fuzz(func(t *testing.T, doc []byte, n uint16) {
		for _, fr := range [][][]byte{{doc}, {doc, make([]byte, n)}} {
			a, err := enginecore.DecodeNDArray(fr)
			typed(t, err)
			if len(doc) > 0 {
				_, err = enginecore.DecodeNDArrayUnguarded(fr)
				typed(t, err)
			}
			if a != nil {
				_, err = newest(t).EncodeNDArray(a)
				require.NoError(t, err)
			}
		}
	})
}
