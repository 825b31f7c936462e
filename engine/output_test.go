package engine

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestKeptSharesNothing: overwriting the message that an output came in does not change what
// was kept of it, whatever field it is.
func TestKeptSharesNothing(t *testing.T) {
	array := func() *serde.NDArray {
		return &serde.NDArray{DType: "<i4", Shape: []int{100}, Data: fill(400)}
	}
	tensor := func() *serde.Tensor {
		return &serde.Tensor{DType: "uint8", Shape: []int{400}, Data: fill(400)}
	}
	full := enginecore.Output{
		RequestID: "r", NewTokenIDs: []uint32{1, 2}, PoolingOutput: tensor(), RoutedExperts: array(), StopReason: "stop",
		TraceHeaders: map[string]string{"a": "b"}, Events: []enginecore.Event{{Type: enginecore.EventQueued}}, MMCacheMissHashes: []string{"h"},
	}
	reason := enginecore.FinishStop
	full.FinishReason = &reason
	n := 0
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Interface && f.IsNil() && v.Type().Field(i).Type == reflect.TypeFor[any]() {
			f.Set(reflect.ValueOf([]any{array(), map[string]any{"x": fill(300), "y": []any{array(), "text"}}, &serde.Map{Keys: []any{int64(1)}, Values: []any{fill(300)}}}))
			n++
		}
	}
	require.Positive(t, n)
	codec, err := enginecore.New(enginecore.Options{})
	require.NoError(t, err)
	peer, err := wire.New(serde.Options{})
	require.NoError(t, err)
	f, err := peer.EncodeOutputs(&enginecore.Outputs{Outputs: []enginecore.Output{full}})
	require.NoError(t, err)
	decode := func(f [][]byte) *enginecore.Output {
		var own [][]byte
		for _, b := range f {
			own = append(own, append([]byte{}, b...))
		}
		m, err := codec.DecodeOutputs(own)
		require.NoError(t, err)
		require.Len(t, m.Outputs, 1)
		require.Empty(t, m.Outputs[0].Unread)
		c := kept(&m.Outputs[0])
		for _, b := range own {
			clear(b)
		}
		return c
	}
	m, err := codec.DecodeOutputs(f)
	require.NoError(t, err)
	require.Equal(t, &m.Outputs[0], decode(f))
}

func fill(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 7
	}
	return b
}
