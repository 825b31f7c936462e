package goldentest

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/ringcache/ringcache/pycompat"
)

// Runner is what [testing.M] and goleak.VerifyTestMain agree on.
type Runner interface{ Run() int }

// ReadOnlyTable returns a Runner that runs m, and fails if the table of releases was
// altered meanwhile. All packages share the table of package pycompat by pointer, and
// nothing but this check keeps them from writing to it.
func ReadOnlyTable(m Runner) Runner { return tableRunner{m} }

type tableRunner struct{ tests Runner }

func (r tableRunner) Run() int {
	before := table()
	status := r.tests.Run()
	for i, now := range table() {
		if now != before[i] {
			fmt.Fprintf(os.Stderr, "the table of releases was altered, from\n%s\nto\n%s\n", before[i], now)
			status = 1
		}
	}
	return status
}

func table() []string {
	var out []string
	for _, g := range pycompat.Releases() {
		b, err := json.Marshal(g)
		if err != nil {
			panic(err)
		}
		out = append(out, string(b))
	}
	return out
}
