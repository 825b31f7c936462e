package enginecore_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine/enginetest/wire"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/serde/enginecore"
)

func TestHandshakes(t *testing.T) {
	h := &enginecore.Handshake{
		Status: "READY", Headless: true, NumGPUBlocks: ptr(5), DPStatsAddress: ptr("tcp://x"), ParallelConfigHash: ptr("h"),
		Rest: map[string]any{"new": int64(1)},
	}
	b, err := wire.EncodeHandshake(h)
	require.NoError(t, err)
	got, err := enginecore.DecodeHandshake(b)
	require.NoError(t, err)
	require.Equal(t, h, got)

	got, err = enginecore.DecodeHandshake(pack(t, map[string]any{"status": "READY", "local": true, "headless": true, "num_gpu_blocks": "x", "dp_stats_address": nil}))
	require.NoError(t, err)
	require.Nil(t, got.NumGPUBlocks)
	require.Equal(t, map[string]any{"num_gpu_blocks": "x"}, got.Rest)
	for _, c := range []struct {
		v    any
		text string
	}{
		{nil, "got a <nil>, want a map with strings for keys"},
		{1, "got a int64, want a map with strings for keys"},
		{[]int{}, "got a []interface {}, want a map with strings for keys"},
		{map[string]any{"status": "HELLO"}, "got a map without them, want status, local and headless"},
		{map[string]any{"status": 1, "local": true, "headless": true}, "got a map without them, want status, local and headless"},
		{map[int]int{1: 1}, "got a *serde.Map, want a map with strings for keys"},
	} {
		_, err := enginecore.DecodeHandshake(pack(t, c.v))
		corrupt(t, err, c.text, "%v", c.v)
	}
	_, err = wire.EncodeHandshake(nil)
	invalid(t, err, "it is a nil *Handshake")
	_, err = wire.EncodeHandshake(&enginecore.Handshake{Rest: map[string]any{"x": &serde.Tensor{DType: "uint8", Shape: []int{300}, Data: make([]byte, 300)}}})
	invalid(t, err, "this message has one frame only")
}

func TestInits(t *testing.T) {
	i := &enginecore.Init{
		Inputs: []string{"a", "b"}, Outputs: []string{"c", "d"}, CoordinatorInput: ptr("e"), CoordinatorOutput: ptr("f"),
		FrontendStatsPublishAddress: ptr("g"), ParallelConfig: map[string]any{"data_parallel_size": int64(2)}, ParallelConfigHash: ptr("h"),
	}
	b, err := enginecore.EncodeInit(i)
	require.NoError(t, err)
	got, err := wire.DecodeInit(b)
	require.NoError(t, err)
	require.Equal(t, i, got)
	for _, c := range []struct {
		v    any
		text string
	}{
		{nil, "got nil, want a map"},
		{map[string]any{}, `got none, want the key "addresses"`},
		{map[string]any{"addresses": 1, "parallel_config": map[string]any{}}, "got an integer, want a map"},
		{map[string]any{"addresses": map[string]any{"inputs": []any{1}, "outputs": []any{}}}, "got an integer, want a string"},
		{map[string]any{"addresses": map[string]any{"inputs": []any{}}}, `got none, want the key "outputs"`},
	} {
		_, err := wire.DecodeInit(pack(t, c.v))
		corrupt(t, err, c.text, "%v", c.v)
	}
	_, err = enginecore.EncodeInit(nil)
	invalid(t, err, "it is a nil *Init")
}

func TestReady(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			c := newPair(t, g, 0)
			r := &enginecore.Ready{MaxModelLen: 4096, NumGPUBlocks: 100, Rest: map[string]any{}}
			has := func(name string) bool { return slices.Contains(g.ReadyFields, name) }
			if has("world_size") {
				r.WorldSize, r.DataParallelSize = 2, 1
			}
			if has("vllm_version") {
				r.VLLMVersion, r.DType, r.BlockSize = g.Version, "torch.bfloat16", 16
			}
			b, err := c.engine.EncodeReady(r)
			require.NoError(t, err)
			got, err := enginecore.DecodeReady(b)
			require.NoError(t, err)
			if len(g.ReadyFields) == 0 {
				require.Empty(t, b)
				require.Equal(t, &enginecore.Ready{}, got)
				return
			}
			for k, v := range got.Rest {
				require.Nil(t, v, k)
			}
			got.Rest = r.Rest
			require.Equal(t, r, got)
			_, err = c.engine.EncodeReady(&enginecore.Ready{Rest: map[string]any{"bogus": 1}})
			invalid(t, err, "field bogus: the ready message of vLLM "+g.Version+" has none")
		})
	}
	got, err := enginecore.DecodeReady(pack(t, map[string]any{"world_size": -1, "vllm_version": 5, "block_size": 16, "other": []int{1}}))
	require.NoError(t, err)
	require.Equal(t, &enginecore.Ready{BlockSize: 16, Rest: map[string]any{"world_size": int64(-1), "vllm_version": int64(5), "other": []any{int64(1)}}}, got)
	_, err = enginecore.DecodeReady([]byte{0x90})
	corrupt(t, err, "got a []interface {}, want a map with strings for keys")
	_, err = newest(t).engine.EncodeReady(nil)
	invalid(t, err, "it is a nil *Ready")
}

func TestUtilityCalls(t *testing.T) {
	p := newest(t)
	c := &enginecore.Call{ClientIndex: 3, ID: 1 << 63, Method: "collective_rpc", Args: []any{"check_health", nil, []any{}, map[string]any{}}}
	f, err := p.EncodeCall(c)
	require.NoError(t, err)
	require.Equal(t, []byte{3}, f[0])
	got, err := p.engine.Decode(f)
	require.NoError(t, err)
	require.Equal(t, c, got)
	f, err = p.EncodeCall(&enginecore.Call{Method: "x"})
	require.NoError(t, err)
	require.Equal(t, "\x94\x00\x00\xa1x\x90", string(f[1]))
	f, err = p.EncodeCall(&enginecore.Call{Method: "x", Args: []any{&serde.Tensor{DType: "uint8", Shape: []int{300}, Data: make([]byte, 300)}}})
	require.NoError(t, err)
	require.Len(t, f, 3)
	got, err = p.engine.Decode(f)
	require.NoError(t, err)
	require.Equal(t, []any{[]any{"uint8", []any{int64(300)}, int64(1)}}, got.(*enginecore.Call).Args)
	for _, c := range []struct {
		v    any
		text string
	}{
		{nil, "utility call at byte 0: got nil, want an array"},
		{[]any{1, 2, "x"}, "got one of 3, want an array of 4"},
		{[]any{1, -2, "x", []any{}}, "corrupt call_id"},
		{[]any{1, 2, "x", map[string]any{}}, "corrupt args"},
		{[]any{"a", 2, "x", []any{}}, "corrupt client_index"},
	} {
		_, err := p.engine.Decode([][]byte{{3}, pack(t, c.v)})
		corrupt(t, err, c.text, "%v", c.v)
	}
	_, err = p.EncodeCall(nil)
	invalid(t, err, "it is a nil *Call")
	_, err = p.engine.Decode([][]byte{{1}, []byte("\x91\x01")})
	corrupt(t, err, "abort at byte 1: got an integer, want a string")
	_, err = p.engine.Decode([][]byte{{9}, {0x90}})
	require.ErrorIs(t, err, serde.ErrUnsupported)
	require.ErrorContains(t, err, "type 9")
	_, err = p.engine.Decode([][]byte{{0}})
	corrupt(t, err, "got 1 frames, want a type of one byte and a body")
}
