package enginecore_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde/enginecore"
)

// Python's integers have no end: the seeds of a request's children pass 2^63 without a wrap.
func TestSeedsOfChildrenPassTheLargestInt64(t *testing.T) {
	c := release(t, "0.33.0")
	request := func(id string, params map[string]any) *enginecore.Message {
		m, err := c.EncodeRequest(&enginecore.Request{RequestID: id, PromptTokenIDs: []uint32{1}, Params: c.sampling(t, params)})
		require.NoError(t, err)
		return m
	}
	const n = 4
	for _, seed := range []int64{math.MaxInt64 - 3, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64} {
		m := request("r", map[string]any{"max_tokens": 9, "n": n, "seed": seed})
		for i := range n {
			got, err := m.Child(i, "child")
			require.NoError(t, err)
			require.Equal(t, request("child", map[string]any{"max_tokens": 9, "seed": uint64(seed) + uint64(i)}).Frames(), got, "%d, child %d", seed, i)
		}
	}
}
