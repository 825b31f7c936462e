package chart

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
			drawn := Chart{Title: "<a & b>", X: "x", Y: "y", LogY: c.logY, XText: func(x float64) string {
				return fmt.Sprint(int(x))
			}}
			points := 0
			for i, y := range c.y {
				drawn.Add("arm", float64(int(64<<10)<<i), y)
				if y > 0 {
					points++
				}
			}
			svg := string(drawn.SVG())
			require.NoError(t, xml.Unmarshal([]byte(svg), new(struct{ XMLName xml.Name })))
			assert.Equal(t, points, strings.Count(svg, "<circle"))
			assert.NotRegexp(t, `NaN|Inf|="-|[ MHVL]-\d`, svg, "everything is inside")
		})
	}
}
