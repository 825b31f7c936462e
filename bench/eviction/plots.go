package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/bench/internal/chart"
)

// charts returns the hit rate over the size of the cache, a chart for each trace, by the names of their
// files.
func charts(rows []row) map[string]chart.Chart {
	all := map[string]chart.Chart{}
	for _, r := range rows {
		words := strings.FieldsFunc(strings.ToLower(r.workload), func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < '0' || c > '9')
		})
		name := "hit-rate-" + strings.Join(words, "-")
		c, ok := all[name]
		if !ok {
			c = chart.Chart{Title: "hit rate: " + r.workload, X: "size of the cache", Y: "% of uses",
				XText: func(gib float64) string {
					return fmt.Sprintf("%g GiB", gib)
				}}
		}
		for i, x := range r.results {
			c.Add(contenders[i].name, r.gib, 100*x.hits)
		}
		all[name] = c
	}
	return all
}

func writeCharts(folder string, rows []row) error {
	err := os.MkdirAll(folder, 0o755)
	for name, c := range charts(rows) {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name+".svg"), c.SVG(), 0o644))
	}
	return err
}
