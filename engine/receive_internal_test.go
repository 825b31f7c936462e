package engine

import (
	"runtime"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestPassedMessageIsLetGo: an engine that is idle after a large answer doesn't keep the answer in memory.
func TestPassedMessageIsLetGo(t *testing.T) {
	const size = 1 << 20
	w, err := wire.New(serde.Options{Generation: pycompat.Newest()})
	require.NoError(t, err)
	frames, err := w.EncodeOutputs(&enginecore.Outputs{Outputs: []enginecore.Output{{
		RequestID: "a", PoolingOutput: &serde.Tensor{DType: "uint8", Shape: []int{size}, Data: make([]byte, size)},
	}}})
	require.NoError(t, err)
	require.Len(t, frames, 2)
	message := weak.Make(&frames[1][0])
	codec, err := enginecore.New(enginecore.Options{Generation: pycompat.Newest()})
	require.NoError(t, err)
	r := codec.NewOutputsReader()
	out, err := r.Read(frames)
	require.NoError(t, err)
	require.Len(t, out.Outputs, 1)
	new(session).pass(out)
	runtime.GC() // frames is not used any more
	require.Nil(t, message.Value())
	runtime.KeepAlive(r)
}
