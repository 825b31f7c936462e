package warm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCounts(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want counts
	}{
		"the end of labels in a label": {
			"# HELP vllm:ringcache_encoder_hits_total encoder outputs\nvllm:ringcache_encoder_hits_total{engine=\"0\",model_name=\"a } 7\"} 3.0\n" +
				"vllm:ringcache_encoder_misses_total 1.0\nvllm:ringcache_encoder_hits_created{engine=\"0\"} 1.7e+09\n",
			counts{}, // a label can't be told from its end: nothing is better than a wrong number
		},
		"two engines": {
			"vllm:ringcache_encoder_hits_total{engine=\"0\"} 3.0\nvllm:ringcache_encoder_hits_total{engine=\"1\"} 1e1 1700000000\nvllm:ringcache_encoder_misses_total{engine=\"0\"} 2\n",
			counts{13, 2},
		},
		"without labels":   {"vllm:ringcache_encoder_hits_total 0.0\nvllm:ringcache_encoder_misses_total 4\n", counts{0, 4}},
		"hits only":        {"vllm:ringcache_encoder_hits_total 1\n", counts{}},
		"no number":        {"vllm:ringcache_encoder_hits_total x\nvllm:ringcache_encoder_misses_total 4\n", counts{}},
		"too large":        {"vllm:ringcache_encoder_hits_total 1e300\nvllm:ringcache_encoder_misses_total 4\n", counts{}},
		"not a number":     {"vllm:ringcache_encoder_hits_total NaN\nvllm:ringcache_encoder_misses_total 4\n", counts{}},
		"an endless line":  {"vllm:ringcache_encoder_hits_total 1\nvllm:ringcache_encoder_misses_total 4\n" + strings.Repeat("x", 1<<20), counts{}},
		"something else":   {"<html>", counts{}},
		"nothing":          {"", counts{}},
		"torn in its line": {"vllm:ringcache_encoder_hits_total{engine=\"0\"", counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, known := parseCounts(strings.NewReader(c.text))
			require.Equal(t, c.want != counts{}, known)
			if known {
				require.Equal(t, c.want, got)
			}
		})
	}
}
