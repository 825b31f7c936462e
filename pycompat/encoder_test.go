package pycompat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// TestEncoderByRelease spells out where each rule of the encoder cache came and went (read from the sources of
// every release).
func TestEncoderByRelease(t *testing.T) {
	for _, c := range []struct {
		name        string
		rule        func(*pycompat.Generation) bool
		first, last string // both inclusive; "" for the end of the table
	}{
		{"tokens", func(g *pycompat.Generation) bool { return g.Encoder.Tokens }, "0.11.0", "0.12.0"},
		{"copied inputs", func(g *pycompat.Generation) bool { return g.Encoder.CopiedInputs }, "0.11.0", "0.14.1"},
		{"own inputs", func(g *pycompat.Generation) bool { return g.Encoder.OwnInputs }, "0.23.0", ""},
		{"spares allocated", func(g *pycompat.Generation) bool { return g.Encoder.SparesAllocated }, "0.28.0", ""},
		{"holds to the last", func(g *pycompat.Generation) bool { return g.Encoder.HoldsToLast }, "0.29.0", ""},
		{"keeps the count", func(g *pycompat.Generation) bool { return g.Encoder.KeepsCount }, "0.31.0", ""},
	} {
		in := false
		for _, g := range pycompat.Releases() {
			in = in || g.Version == c.first
			require.Equal(t, in, c.rule(g), "%s in %s", c.name, g.Version)
			if g.Version == c.last {
				in = false
			}
		}
	}
}
