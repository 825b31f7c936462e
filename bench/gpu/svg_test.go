package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSVG(t *testing.T) {
	for name, c := range map[string]struct {
		logY bool
		y    []float64
	}{
		"one point":          {false, []float64{3}},
		"one point, log":     {true, []float64{3}},
		"a power, log":       {true, []float64{10}},
		"all the same":       {false, []float64{2, 2, 2}},
		"small and large":    {true, []float64{0.003, 50, 7e6}},
		"linear":             {false, []float64{0.1, 55.3, 12}},
		"far below one":      {false, []float64{1e-6, 3e-6}},
		"zeros are left out": {true, []float64{0, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			drawn := chart{title: "<a & b>", x: "x", y: "y", logY: c.logY, xText: func(x float64) string { return bytesText(int(x)) }}
			points := 0
			for i, y := range c.y {
				drawn.add("arm", float64(int(64*kib)<<i), y)
				if y > 0 {
					points++
				}
			}
			svg := string(drawn.svg())
			checkXML(t, []byte(svg))
			assert.Equal(t, points, strings.Count(svg, "<circle"))
			assert.NotRegexp(t, `NaN|Inf|="-|[ MHVL]-\d`, svg, "everything is inside")
		})
	}
}
