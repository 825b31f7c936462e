package enginecore_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestOutputsReader: nothing of a message, and of what was wrong with it, is found in the next,
// and what outputs point to stays.
func TestOutputsReader(t *testing.T) {
	p := newest(t)
	reason := enginecore.FinishLength
	encode := func(m *enginecore.Outputs) [][]byte {
		f, err := p.engine.EncodeOutputs(m)
		require.NoError(t, err)
		return f
	}
	large := &enginecore.Outputs{Timestamp: 1}
	for i := range 2000 { // more than are kept
		large.Outputs = append(large.Outputs, enginecore.Output{RequestID: strconv.Itoa(i), NewTokenIDs: []uint32{uint32(i)}})
	}
	wave := 7
	messages := [][][]byte{
		encode(&enginecore.Outputs{Timestamp: 1.5, FinishedRequests: []string{"x"}, WaveComplete: &wave, Outputs: []enginecore.Output{
			{RequestID: "a", NewTokenIDs: []uint32{1, 2}, FinishReason: &reason, StopReason: int64(5), Logprobs: []any{int64(1)}},
			{RequestID: "b", NewTokenIDs: []uint32{3}, NumNaNsInLogits: 9},
		}}),
		{{0x92, 0xc0, 0x91, 0xc0}}, // parts that can't be read
		{{0xc1}},
		{[]byte("ENGINE_CORE_DEAD")},
		encode(&enginecore.Outputs{Outputs: []enginecore.Output{{RequestID: "c", NewTokenIDs: []uint32{4}}}}),
		encode(&enginecore.Outputs{}),
		encode(large),
		encode(&enginecore.Outputs{Outputs: []enginecore.Output{{RequestID: "d", NewTokenIDs: []uint32{5}}}}),
	}
	r := p.NewOutputsReader()
	var kept, want []enginecore.Output
	for round := range 3 {
		for i, f := range messages {
			fresh, freshErr := p.DecodeOutputs(f)
			again, err := r.Read(f)
			require.Equal(t, freshErr, err, "%d %d", round, i)
			if err != nil {
				require.Nil(t, again)
				continue
			}
			require.Len(t, again.Outputs, len(fresh.Outputs))
			kept, want = append(kept, again.Outputs...), append(want, fresh.Outputs...)
			same, m := *again, *fresh
			same.Outputs, m.Outputs = nil, nil
			require.Equal(t, m, same, "%d %d", round, i)
		}
	}
	require.Equal(t, want, kept)
}
