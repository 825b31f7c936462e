package enginecore_test

import (
	"bytes"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func TestMain(m *testing.M) { os.Exit(goldentest.ReadOnlyTable(m).Run()) }

// pair is both halves of the messages of a generation.
type pair struct {
	*enginecore.Codec
	engine *wire.Codec
	gen    *pycompat.Generation
}

func newPair(t require.TestingT, g *pycompat.Generation, threshold int) pair {
	g, err := pycompat.Resolve(g)
	require.NoError(t, err)
	c, err := enginecore.New(enginecore.Options{Generation: g, InlineThreshold: threshold})
	require.NoError(t, err)
	e, err := wire.New(serde.Options{Generation: g, InlineThreshold: threshold})
	require.NoError(t, err)
	return pair{c, e, g}
}

func newest(t require.TestingT) pair { return newPair(t, nil, 0) }

func release(t require.TestingT, version string) pair {
	g, err := pycompat.Lookup(version)
	require.NoError(t, err)
	return newPair(t, g, 0)
}

func (p pair) sampling(t require.TestingT, params map[string]any) *enginecore.Params {
	s, err := p.ParseSampling(params)
	require.NoError(t, err)
	return s
}

func (p pair) pooling(t require.TestingT, params map[string]any) *enginecore.Params {
	s, err := p.ParsePooling(params)
	require.NoError(t, err)
	return s
}

// request decodes the body of a request as an engine does.
func (p pair) request(body ...[]byte) (*wire.Request, error) {
	m, err := p.engine.Decode(append([][]byte{{0}}, body...))
	if err != nil {
		return nil, err
	}
	return m.(*wire.Request), nil
}

// again returns a request that arrived as one to be sent.
func (p pair) again(t require.TestingT, r *wire.Request) *enginecore.Request {
	out := r.Request
	var err error
	switch {
	case r.SamplingParams != nil:
		out.Params, err = p.ParseSampling(r.SamplingParams)
	case r.PoolingParams != nil:
		out.Params, err = p.ParsePooling(r.PoolingParams)
	}
	require.NoError(t, err)
	return &out
}

func ptr[T any](v T) *T { return &v }

func seq(n, mul, add int) []byte { return goldentest.Sequence(n, mul, add) }

func pack(t require.TestingT, v any) []byte {
	b, err := msgpack.Marshal(v)
	require.NoError(t, err)
	return b
}

// invalid asserts that err refuses a value with that text.
func invalid(t require.TestingT, err error, text string, more ...any) {
	require.ErrorIs(t, err, fs.ErrInvalid, more...)
	require.ErrorContains(t, err, text, more...)
}

// corrupt asserts that err is about corrupt data with that text.
func corrupt(t require.TestingT, err error, text string, more ...any) {
	require.ErrorIs(t, err, serde.ErrCorrupt, more...)
	require.ErrorContains(t, err, text, more...)
}

func equalItem(t require.TestingT, want, got *serde.Item) {
	require.Equal(t, want.Modality, got.Modality)
	require.Len(t, got.Elems, len(want.Elems))
	for i := range want.Elems {
		require.Equal(t, want.Elems[i], got.Elems[i])
	}
}

func equalTensor(t require.TestingT, want, got *serde.Tensor) {
	require.Equal(t, want == nil, got == nil)
	if want != nil {
		require.Equal(t, want.DType, got.DType)
		require.Equal(t, want.Shape, got.Shape)
		require.True(t, bytes.Equal(want.Data, got.Data))
	}
}
