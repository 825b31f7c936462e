package serde

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

func TestHandshakes(t *testing.T) {
	h := &Handshake{
		Status: StatusReady, Headless: true, NumGPUBlocks: ptr(5), DPStatsAddress: ptr("tcp://x"), ParallelConfigHash: ptr("h"),
		Rest: map[string]any{"new": int64(1)},
	}
	b, err := EncodeHandshake(h)
	require.NoError(t, err)
	got, err := DecodeHandshake(b)
	require.NoError(t, err)
	require.Equal(t, h, got)

	got, err = DecodeHandshake(pack(t, map[string]any{"status": "READY", "local": true, "headless": true, "num_gpu_blocks": "x", "dp_stats_address": nil}))
	require.NoError(t, err)
	require.Nil(t, got.NumGPUBlocks)
	require.Equal(t, map[string]any{"num_gpu_blocks": "x"}, got.Rest)
	for _, v := range []any{nil, 1, []int{}, map[string]any{"status": "HELLO"}, map[string]any{"status": 1, "local": true, "headless": true}, map[int]int{1: 1}} {
		_, err := DecodeHandshake(pack(t, v))
		require.ErrorIs(t, err, ErrCorrupt, "%v", v)
	}
	_, err = EncodeHandshake(nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = EncodeHandshake(&Handshake{Rest: map[string]any{"x": &Tensor{DTypeUint8, []int{300}, make([]byte, 300)}}})
	require.ErrorIs(t, err, ErrInvalid)
}

func TestInits(t *testing.T) {
	i := &Init{
		Inputs: []string{"a", "b"}, Outputs: []string{"c", "d"}, CoordinatorInput: ptr("e"), CoordinatorOutput: ptr("f"),
		FrontendStatsPublishAddress: ptr("g"), ParallelConfig: map[string]any{"data_parallel_size": int64(2)}, ParallelConfigHash: ptr("h"),
	}
	b, err := EncodeInit(i)
	require.NoError(t, err)
	got, err := DecodeInit(b)
	require.NoError(t, err)
	require.Equal(t, i, got)
	for _, v := range []any{nil, map[string]any{}, map[string]any{"addresses": 1, "parallel_config": map[string]any{}},
		map[string]any{"addresses": map[string]any{"inputs": []any{1}, "outputs": []any{}}, "parallel_config": map[string]any{}}} {
		_, err := DecodeInit(pack(t, v))
		require.ErrorIs(t, err, ErrCorrupt, "%v", v)
	}
	_, err = EncodeInit(nil)
	require.ErrorIs(t, err, ErrInvalid)
}

func TestReady(t *testing.T) {
	for _, g := range pycompat.Releases() {
		o := Options{Generation: g}
		r := &Ready{MaxModelLen: 4096, NumGPUBlocks: 100, Rest: map[string]any{}}
		has := func(name string) bool { return slices.Contains(g.ReadyFields, name) }
		if has("world_size") {
			r.WorldSize, r.DataParallelSize = 2, 1
		}
		if has("vllm_version") {
			r.VLLMVersion, r.DType, r.BlockSize = g.Version, "torch.bfloat16", 16
		}
		b, err := EncodeReady(r, o)
		require.NoError(t, err)
		got, err := DecodeReady(b)
		require.NoError(t, err)
		if len(g.ReadyFields) == 0 {
			require.Empty(t, b)
			require.Equal(t, &Ready{}, got)
			continue
		}
		for k, v := range got.Rest {
			require.Nil(t, v, k)
		}
		got.Rest = r.Rest
		require.Equal(t, r, got, g.Version)
		_, err = EncodeReady(&Ready{Rest: map[string]any{"bogus": 1}}, o)
		require.ErrorIs(t, err, ErrInvalid)
	}
	got, err := DecodeReady(pack(t, map[string]any{"world_size": -1, "vllm_version": 5, "block_size": 16, "other": []int{1}}))
	require.NoError(t, err)
	require.Equal(t, &Ready{BlockSize: 16, Rest: map[string]any{"world_size": int64(-1), "vllm_version": int64(5), "other": []any{int64(1)}}}, got)
	_, err = DecodeReady([]byte{0x90})
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = EncodeReady(nil, Options{})
	require.ErrorIs(t, err, ErrInvalid)
}

func TestUtilityCalls(t *testing.T) {
	c := &UtilityCall{ClientIndex: 3, CallID: 1 << 63, Method: "collective_rpc", Args: []any{"check_health", nil, []any{}, map[string]any{}}}
	f, err := EncodeUtility(c, Options{})
	require.NoError(t, err)
	got, err := DecodeUtility(f, Options{})
	require.NoError(t, err)
	require.Equal(t, c, got)
	f, err = EncodeUtility(&UtilityCall{Method: "x"}, Options{})
	require.NoError(t, err)
	require.Equal(t, "\x94\x00\x00\xa1x\x90", string(f[0]))
	f, err = EncodeUtility(&UtilityCall{Method: "x", Args: []any{&Tensor{DTypeUint8, []int{300}, make([]byte, 300)}}}, Options{})
	require.NoError(t, err)
	require.Len(t, f, 2)
	got, err = DecodeUtility(f, Options{})
	require.NoError(t, err)
	require.Equal(t, []any{[]any{"uint8", []any{int64(300)}, int64(1)}}, got.Args)
	for _, v := range []any{nil, []any{1, 2, "x"}, []any{1, -2, "x", []any{}}, []any{1, 2, "x", map[string]any{}}, []any{"a", 2, "x", []any{}}} {
		_, err := DecodeUtility(Frames{pack(t, v)}, Options{})
		require.ErrorIs(t, err, ErrCorrupt, "%v", v)
	}
	_, err = EncodeUtility(nil, Options{})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = DecodeAbort([]byte("\x91\x01"))
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, []byte{3}, MessageUtility.Frame())
}

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
	for _, doc := range [][]byte{
		fill("\x92\x00", "\x92\xa0\x90", n), fill("\x92\x00", "\x91\xa0", n), fill("\x92\x00", "\xc0", n), fill("\x92\x00", "\x92\xa0\xc0", n),
		fill("\x93\x00\x90", "\x81\xa0\xc0", n), fill("\x93\x00\x90", "\x80", n), fill("\x93\x00\x90", "\x90", n), fill("\x93\x00\x90", "\xcd\xff\xff", n),
		fill("\x95\x00\x90\xc0\x00\x93\x01\xc0\x92\xc0", "\x81\x01\x02", n), fill("\x96\x00\x90\xc0\x00\xc0", "\xa0", n),
		fill("\x91", "\x01", n), fill("\x94\x01\x02\xa1x", "\x81\xa0\xc0", n), fill("", "\xa0", n),
		fill("\x92\xa1r", "\x01", n), fill("\x93\xa1r\x90", "\x84\xa4data\xc0\xa8modality\xa0\xaaidentifier\xa0\xabmm_position\x82\xa6offset\x00\xa6length\x00", n),
		fill("\x94\xa1r\x90\xc0\xde\x00\x01\xa1x", "\x81\xa0\xc0", n), fill("\x95\xa1r\x90\xc0\xc0", "\x81\xa0\xc0", n),
	} {
		for i, decode := range []func(){
			func() { _, _ = DecodeOutputs(Frames{doc}, Options{}) },
			func() { _, _ = DecodeRequest(Frames{doc}, Options{}) },
			func() { _, _ = DecodeUtility(Frames{doc}, Options{}) },
			func() { _, _ = DecodeAbort(doc) },
			func() { _, _ = DecodeReady(doc) },
			func() { _, _ = DecodeHandshake(doc) },
			func() { _, _ = DecodeInit(doc) },
		} {
			took := allocated(decode)
			// All that was ever allocated; slices that grow count several times.
			require.Less(t, took, uint64(150<<20), "%d: %q", i, doc[:min(len(doc), 40)])
		}
	}
	for _, b := range []string{"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff"} {
		for _, head := range []string{"", "\x92\x00", "\x92\x00\x91", "\x92\x00\x92\xa1r\x91", "\x81\xa6status", "\x92\xa1r", "\x94\xa1r\x90\xc0"} {
			doc := []byte(head + b)
			require.Less(t, allocated(func() {
				_, err := DecodeOutputs(Frames{doc}, Options{})
				require.Error(t, err)
				_, err = DecodeRequest(Frames{doc}, Options{})
				require.Error(t, err)
			}), uint64(256<<10), "%q", doc)
		}
	}
}
