package sidecar

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// interrupt runs f until it comes to a failpoint.
func interrupt(t *testing.T, place string, f func()) {
	t.Helper()
	failpoint.Need(t)
	defer failpoint.Set(nil)
	defer func() { require.Equal(t, place, recover()) }()
	failpoint.Set(func(name string) {
		if name == place {
			panic(place)
		}
	})
	f()
}

func TestStateIsSetInOneStep(t *testing.T) {
	m := formatted(t, options())
	for place, done := range map[string]bool{"sidecar.state.begin": false, "sidecar.state.half": false, "sidecar.state.end": true} {
		t.Run(place, func(t *testing.T) {
			c, err := privateOf(m, true)
			require.NoError(t, err)
			old := c.State()
			for n := range uint32(5) { // whichever record it is, and as often as it happens
				next := old
				next.NextID += n + 1
				interrupt(t, place, func() { c.SetState(next) })
				c, err = privateOf(c.mem, true)
				require.NoError(t, err)
				want := old
				if done {
					want = next
				}
				want.Damaged = place == "sidecar.state.half" // of one record the checksum is spoiled
				require.Equal(t, want, c.State())
				old = want
			}
			c.SetState(State{Epoch: 9})
			c, err = privateOf(c.mem, true)
			require.NoError(t, err)
			require.Equal(t, State{Epoch: 9}, c.State())
		})
	}
}
