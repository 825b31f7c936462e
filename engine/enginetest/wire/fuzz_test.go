package wire

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

// TestEveryFieldIsRead: every name of every release is one that the tables have.
func TestEveryFieldIsRead(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			for _, name := range g.RequestFields {
				require.Contains(t, fieldReaders, name)
			}
			for _, name := range g.OutputFields {
				require.Contains(t, outputFields, name)
			}
			for _, name := range g.OutputsFields {
				require.Contains(t, outputsFields, name)
			}
		})
	}
}

// typed fails unless err is nil or of the kinds of package serde.
func typed(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, serde.ErrCorrupt) && !errors.Is(err, serde.ErrUnsupported) {
		t.Fatalf("untyped error %v", err)
	}
}

// seeds adds the main documents that the golden files have under a section, with the
// index of their release.
func seeds(f *testing.F, section string, add func(doc []byte, release byte)) {
	index := map[string]int{}
	for i, g := range pycompat.Releases() {
		index[g.Version] = i
	}
	for _, file := range goldentest.Files(f, "requests") {
		for _, row := range goldentest.Rows[goldentest.Frames](f, file, section) {
			if row.Frames[0].Raw != nil {
				add(row.Frames[0].Raw, byte(index[file.Releases[0]]))
			}
		}
	}
}

// halves returns both halves of a release's messages.
func halves(t testing.TB, i byte) (*Codec, *enginecore.Codec) {
	all := pycompat.Releases()
	g := all[int(i)%len(all)]
	c, err := New(serde.Options{Generation: g})
	require.NoError(t, err)
	e, err := enginecore.New(enginecore.Options{Generation: g})
	require.NoError(t, err)
	return c, e
}

// frames are documents with none and with some frames behind them.
func frames(doc []byte, n uint16) [][][]byte {
	return [][][]byte{{doc}, {doc, make([]byte, n)}, {doc, make([]byte, n), make([]byte, 300), make([]byte, 24)}}
}

func FuzzDecodeRequest(f *testing.F) {
	corpus.Add(f, "request")
	seeds(f, "requests", func(doc []byte, i byte) { f.Add(doc, i, uint16(300)) })
	f.Fuzz(func(t *testing.T, doc []byte, i byte, n uint16) {
		c, frontend := halves(t, i)
		for _, fr := range frames(doc, n) {
			m, err := c.Decode(append([][]byte{{0}}, fr...))
			typed(t, err)
			if len(doc) > 0 {
				_, err := codec.DecodeUnguarded(fr, c.readRequest)
				typed(t, err)
			}
			if err != nil {
				continue
			}
			// What engines would take is written again, and then read the same.
			out, ok := encode(t, frontend, m.(*Request))
			if !ok {
				continue
			}
			back, err := c.Decode(out)
			require.NoError(t, err)
			again, ok := encode(t, frontend, back.(*Request))
			require.True(t, ok)
			require.Equal(t, out, again)
		}
	})
}

// encode writes a request that arrived, if engines would take it.
func encode(t *testing.T, c *enginecore.Codec, r *Request) (frames [][]byte, ok bool) {
	out := r.Request
	var err error
	switch {
	case r.SamplingParams != nil && r.PoolingParams != nil:
		return nil, false
	case r.SamplingParams != nil:
		out.Params, err = c.ParseSampling(r.SamplingParams)
	case r.PoolingParams != nil:
		out.Params, err = c.ParsePooling(r.PoolingParams)
	}
	var m *enginecore.Message
	if err == nil {
		m, err = c.EncodeRequest(&out)
	}
	if err != nil {
		require.ErrorIs(t, err, fs.ErrInvalid)
		return nil, false
	}
	return m.Frames(), true
}

func FuzzDecodeFeature(f *testing.F) {
	corpus.Add(f, "feature")
	seeds(f, "features", func(doc []byte, i byte) { f.Add(doc, i, uint16(300)) })
	f.Add([]byte("\x85\xa4data\xc0\xa8modality\xa1i\xaaidentifier\xa1x\xabmm_position\x82\xa6offset\x01\xa6length\x02\xa3new\x93\x01\x80\xd4\x05z"), byte(0), uint16(0))
	f.Fuzz(func(t *testing.T, doc []byte, i byte, n uint16) {
		if len(doc) == 0 {
			return
		}
		c, _ := halves(t, i)
		for _, fr := range frames(doc, n) {
			feature := func(d *codec.Decoder) (enginecore.Feature, error) { return readFeature(&reader{d, c}, "feature") }
			list := func(d *codec.Decoder) ([]enginecore.Feature, error) { return readFeatures(&reader{d, c}, "features") }
			_, guarded := codec.Decode(fr, feature)
			typed(t, guarded)
			_, err := codec.DecodeUnguarded(fr, feature)
			typed(t, err)
			require.False(t, guarded == nil && err != nil, "only the guarded decoder accepts: %v", err)
			_, err = codec.Decode(fr, list)
			typed(t, err)
			_, err = codec.DecodeUnguarded(fr, list)
			typed(t, err)
		}
	})
}

func FuzzDecodeMessages(f *testing.F) {
	corpus.Add(f, "messages")
	f.Add([]byte("\x92\xa2r1\xa2r2"))
	f.Add([]byte("\x94\x00\xcf\x80\x00\x00\x00\x00\x00\x00\x00\xa5sleep\x91\x01"))
	b, err := enginecore.EncodeInit(&enginecore.Init{Inputs: []string{"ipc://a"}, Outputs: []string{"ipc://b"}})
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, doc []byte) {
		c, frontend := halves(t, byte(len(pycompat.Releases())-1))
		for _, kind := range []byte{1, 3} {
			m, err := c.Decode([][]byte{{kind}, doc})
			typed(t, err)
			switch m := m.(type) {
			case Abort:
				_, err = enginecore.EncodeAbort(m)
			case *enginecore.Call:
				_, err = frontend.EncodeCall(m)
			}
			if m != nil {
				require.NoError(t, err)
			}
		}
		i, err := DecodeInit(doc)
		typed(t, err)
		if i != nil {
			_, err := enginecore.EncodeInit(i)
			require.NoError(t, err)
		}
	})
}
