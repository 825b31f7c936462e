package shortfloat

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryFloat16 converts all of them there and back.
func TestEveryFloat16(t *testing.T) {
	for h := range 1 << 16 {
		x := FromF16(uint16(h))
		exponent, fraction := h>>10&31, h&1023
		if exponent == 31 && fraction != 0 {
			require.True(t, math.IsNaN(float64(x)))
			require.Equal(t, uint16(h)|0x200, ToF16(x))
			continue
		}
		want := math.Ldexp(float64(fraction+1024), exponent-25)
		switch exponent {
		case 0:
			want = math.Ldexp(float64(fraction), -24)
		case 31:
			want = math.Inf(1)
		}
		if h >= 1<<15 {
			want = -want
		}
		require.InDelta(t, want, float64(x), 0, "%#04x", h)
		require.Equal(t, uint16(h), ToF16(x), "%#04x", h)
	}
}

// TestFloat16IsRoundedToNearestEven compares with the two neighbours, for numbers between and at the halves.
func TestFloat16IsRoundedToNearestEven(t *testing.T) {
	for h := range uint16(0x7bff) {
		a, b := FromF16(h), FromF16(h+1)
		half := (a + b) / 2 // exact in a float32
		even := h + h&1
		require.Equal(t, even, ToF16(half), "%#04x", h)
		require.Equal(t, h, ToF16(math.Nextafter32(half, 0)), "%#04x", h)
		require.Equal(t, h+1, ToF16(math.Nextafter32(half, 1e9)), "%#04x", h)
	}
	require.Equal(t, uint16(0x7bff), ToF16(math.Nextafter32(65520, 0)))
	require.Equal(t, uint16(0x7c00), ToF16(65520))
	require.Equal(t, uint16(0x8000), ToF16(-0x1p-26))
}

func TestBFloat16IsRoundedToNearestEven(t *testing.T) {
	for h := range uint32(0x7f80) {
		even := uint16(h + h&1)
		require.Equal(t, math.Float32frombits(h<<16), FromBF16(uint16(h)))
		require.Equal(t, even, ToBF16(math.Float32frombits(h<<16|0x8000)))
		require.Equal(t, uint16(h), ToBF16(math.Float32frombits(h<<16|0x7fff)))
		require.Equal(t, uint16(h+1), ToBF16(math.Float32frombits(h<<16|0x8001)))
	}
	require.Equal(t, uint16(0x7fc0), ToBF16(math.Float32frombits(0x7f800001)), "a NaN is no infinity")
}
