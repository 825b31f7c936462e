package serde

import (
	"testing"

	"github.com/ringcache/ringcache/pycompat"
	"github.com/stretchr/testify/require"
)

// seeds are the main documents that the golden files have under a section.
func seeds(f *testing.F, add func(doc []byte, release byte), encode func(o Options) []Frames) {
	for i, g := range pycompat.Releases() {
		for _, frames := range encode(Options{Generation: g}) {
			add(frames[0], byte(i))
		}
	}
}

// TestGoldenRequests and TestGoldenOutputs show that these encode to the bytes
// of the golden files.
var (
	goldenRequestNames = []string{"minimal", "mm", "all_optional", "lora", "sp_default", "sp_greedy", "sp_rich", "pooling"}
	goldenOutputNames  = []string{"one", "finish", "mm_miss", "error", "events", "pooling", "utility_none", "utility_true", "utility_fail", "wave", "start_wave"}
)

func release(i byte) Options {
	all := pycompat.Releases()
	return Options{Generation: all[int(i)%len(all)]}
}

func fuzzFrames(doc []byte, n uint16) Frames {
	return Frames{doc, make([]byte, n), make([]byte, 300), make([]byte, 24)}
}

func FuzzDecodeRequest(f *testing.F) {
	seeds(f, func(doc []byte, i byte) { f.Add(doc, i, uint16(300)) }, func(o Options) (out []Frames) {
		for _, name := range goldenRequestNames {
			frames, err := encodeRequest(goldenRequest(f, name, o.Generation), o)
			require.NoError(f, err)
			out = append(out, frames)
		}
		return out
	})
	f.Fuzz(func(t *testing.T, doc []byte, i byte, n uint16) {
		o := release(i)
		for _, fr := range []Frames{{doc}, fuzzFrames(doc, n)} {
			r, err := DecodeRequest(fr, o)
			typed(t, err)
			_, err = finish(unguardedDecoder(fr, o), (*decoder).request)
			typed(t, err)
			if r == nil {
				continue
			}
			// What engines would take is written again, and then read the same.
			out, err := EncodeRequest(r, o)
			if err != nil {
				require.ErrorIs(t, err, ErrInvalid)
				continue
			}
			back, err := DecodeRequest(out, o)
			require.NoError(t, err)
			again, err := EncodeRequest(back, o)
			require.NoError(t, err)
			require.Equal(t, out, again)
		}
	})
}

func FuzzDecodeOutputs(f *testing.F) {
	seeds(f, func(doc []byte, i byte) { f.Add(doc, i, uint16(300)) }, func(o Options) (out []Frames) {
		for _, name := range goldenOutputNames {
			// Some are of newer releases only.
			if frames, err := EncodeOutputs(goldenOutputs(f, name), o); err == nil {
				out = append(out, frames)
			}
		}
		return out
	})
	f.Fuzz(func(t *testing.T, doc []byte, i byte, n uint16) {
		o := release(i)
		for _, fr := range []Frames{{doc}, fuzzFrames(doc, n)} {
			m, err := DecodeOutputs(fr, o)
			typed(t, err)
			_, err = finish(unguardedDecoder(fr, o), (*decoder).message)
			typed(t, err)
			if m == nil {
				continue
			}
			for i := range m.Outputs {
				typed(t, m.Outputs[i].Err)
				for _, err := range m.Outputs[i].Unread {
					typed(t, err)
				}
			}
			out, err := EncodeOutputs(m, o)
			require.NoError(t, err)
			back, err := DecodeOutputs(out, o)
			require.NoError(t, err)
			require.Empty(t, back.Unread)
			again, err := EncodeOutputs(back, o)
			require.NoError(t, err)
			require.Equal(t, out, again)
		}
	})
}

func FuzzDecodeMessages(f *testing.F) {
	f.Add([]byte("\x92\xa2r1\xa2r2"))
	f.Add([]byte("\x94\x00\xcf\x80\x00\x00\x00\x00\x00\x00\x00\xa5sleep\x91\x01"))
	f.Add([]byte("\x83\xa6status\xa5HELLO\xa5local\xc3\xa8headless\xc2"))
	b, err := EncodeInit(&Init{Inputs: []string{"ipc://a"}, Outputs: []string{"ipc://b"}})
	require.NoError(f, err)
	f.Add(b)
	b, err = EncodeReady(&Ready{WorldSize: 2}, Options{})
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, doc []byte) {
		if ids, err := DecodeAbort(doc); err == nil {
			_, err := EncodeAbort(ids)
			require.NoError(t, err)
		} else {
			typed(t, err)
		}
		if c, err := DecodeUtility(Frames{doc}, Options{}); err == nil {
			_, err := EncodeUtility(c, Options{})
			require.NoError(t, err)
		} else {
			typed(t, err)
		}
		if h, err := DecodeHandshake(doc); err == nil {
			_, err := EncodeHandshake(h)
			require.NoError(t, err)
		} else {
			typed(t, err)
		}
		if i, err := DecodeInit(doc); err == nil {
			_, err := EncodeInit(i)
			require.NoError(t, err)
		} else {
			typed(t, err)
		}
		_, err := DecodeReady(doc)
		typed(t, err)
	})
}
