package enginecore_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// benchRequest is a request of 2000 tokens with two images, by their addresses.
func benchRequest(b *testing.B, p pair) *enginecore.Request {
	prompt := make([]uint32, 2000)
	for i := range prompt {
		prompt[i] = uint32(i * 61)
	}
	fs := goldenFeatures(p.gen.ItemForm)
	return &enginecore.Request{
		RequestID: "request-1", PromptTokenIDs: prompt, Features: fs[:2], EOSTokenID: ptr(uint32(2)),
		Params: p.sampling(b, map[string]any{"n": 4, "seed": 7, "temperature": 0.5, "top_p": 0.9, "max_tokens": 100}),
	}
}

func BenchmarkParseSampling(b *testing.B) {
	p := newest(b)
	for b.Loop() {
		_, err := p.ParseSampling(map[string]any{"n": 4, "seed": 7, "temperature": 0.5, "top_p": 0.9, "max_tokens": 100})
		require.NoError(b, err)
	}
}

func BenchmarkEncodeRequest(b *testing.B) {
	p := newest(b)
	r := benchRequest(b, p)
	for b.Loop() {
		_, err := p.EncodeRequest(r)
		require.NoError(b, err)
	}
}

// BenchmarkChild is what each sequence of a request takes beyond the first.
func BenchmarkChild(b *testing.B) {
	p := newest(b)
	m, err := p.EncodeRequest(benchRequest(b, p))
	require.NoError(b, err)
	for b.Loop() {
		_, err := m.Child(1, "1_request-1")
		require.NoError(b, err)
	}
}

func BenchmarkDecodeRequest(b *testing.B) {
	p := newest(b)
	m, err := p.EncodeRequest(benchRequest(b, p))
	require.NoError(b, err)
	frames := m.Frames()
	for b.Loop() {
		_, err := p.engine.Decode(frames)
		require.NoError(b, err)
	}
}

// BenchmarkDecodeOutputs is one step of an engine with 64 requests.
func BenchmarkDecodeOutputs(b *testing.B) {
	p := newest(b)
	m := &enginecore.Outputs{Timestamp: 1.5}
	for i := range 64 {
		m.Outputs = append(m.Outputs, enginecore.Output{RequestID: "request-" + strconv.Itoa(i), NewTokenIDs: []uint32{uint32(i * 997)}})
	}
	frames, err := p.engine.EncodeOutputs(m)
	require.NoError(b, err)
	r := p.NewOutputsReader()
	for b.Loop() {
		_, err := r.Read(frames)
		require.NoError(b, err)
	}
}
