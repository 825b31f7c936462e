//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTokens: what an engine answers this frontend is what it answers vLLM's own,
// the first time, from the cache, and with several requests at once.
func TestTokens(t *testing.T) {
	const unsigned = "0.31.0"
	for _, s := range []setup{
		{kind: kind{newest, "llava"}, tp: 1, mode: "shm"},
		{kind: kind{newest, "llava"}, tp: 2, mode: "shm"},
		{kind: kind{unsigned, "llava"}, tp: 1, mode: "shm"},
		{kind: kind{unsigned, "llava"}, tp: 2, mode: "shm"},
		{kind: kind{newest, "qwen2vl"}, tp: 1, mode: "shm"},
		{kind: kind{newest, "qwen2vl"}, tp: 2, mode: "shm", set: []string{"enable_prefix_caching=true"}},
		{kind: kind{newest, "llava"}, tp: 1, mode: "lru"},
		{kind: kind{newest, "qwen2vl"}, tp: 1, mode: "lru", set: []string{"enable_prefix_caching=true"}},
		{kind: kind{unsigned, "llava"}, tp: 1, mode: "lru"},
		{kind: kind{newest, "llava"}, tp: 1, mode: "shm", set: []string{"enable_prefix_caching=true", "block_size=32"}},
	} {
		t.Run(fmt.Sprintf("%s/%s/tp%d/%s%s", s.version, s.model, s.tp, s.mode, prefix(s)), func(t *testing.T) {
			r := newRig(t, s)
			all := r.ref.all()
			images := map[string]bool{}
			for _, in := range all {
				for _, f := range in.Images {
					images[f.Key] = true
				}
			}
			answers := map[string]bool{}
			for _, in := range all {
				answers[fmt.Sprint(in.Tokens)] = true
			}
			require.Greater(t, len(answers), len(all)*3/4, "the answers tell images apart")

			made := 0
			for _, in := range all {
				made += r.right(in)
			}
			require.Equal(t, len(images), made)
			made = r.everything(4, all)
			require.Zero(t, made, "everything was cached")
			t.Logf("%d requests and again, %d images, %d different answers: all tokens equal", len(all), len(images),
				len(answers))
			if s.mode == "shm" {
				r.balanced()
			} else { // the engine forgets, and is sent again what it misses
				_, err := r.Call(r.ctx, "reset_mm_cache")
				require.NoError(t, err)
				r.everything(4, all)
				require.Positive(t, r.Stats().Resent)
				t.Logf("the engine forgot its images: %d requests were sent again, unseen", r.Stats().Resent)
			}
			r.drained()
			r.right(r.ref.named(t, "image3")) // after the reset
			r.sound()
		})
	}
}

func prefix(s setup) string {
	if len(s.set) > 0 {
		return "/prefix-caching"
	}
	return ""
}
