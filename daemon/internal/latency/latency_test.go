package latency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeter(t *testing.T) {
	var m Meter
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 11 * time.Microsecond, time.Second, time.Second + 1, time.Hour} {
		m.Took(d)
	}
	var want Counts
	want.Count, want.Total = 6, 21*time.Microsecond+2*time.Second+1+time.Hour
	want.Within[0], want.Within[1], want.Within[len(Bounds)-1], want.Within[len(Bounds)] = 2, 1, 1, 2
	require.Equal(t, want, m.Counts())
}
