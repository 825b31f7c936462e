package ringtest

import (
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/fuzz/internal/harness"
	"github.com/ringcache/ringcache/fuzz/ringrules"
)

// Exhaust performs every history of up to Depth operations on a ring of Size bytes, shortest
// first: allocations of Payloads bytes; frees of the oldest chunk, of the second, of the newest,
// of all; and a clear, if the ring has one. The ids of the ring begin 2 before their end. What
// fails is one of the shortest histories that do. Exhaust logs the number of histories, which
// is multiplied by about 6 with each operation.
func Exhaust(t testing.TB, n New, o Options) {
	t.Helper()
	if o.Size == 0 {
		o.Size = 40
	}
	if o.Depth == 0 {
		o.Depth = 6
	}
	if o.Payloads == nil {
		half := o.Size/2 - ringrules.HeaderSize
		// two fit, two just don't, all
		o.Payloads = []int{1, max(half, 1), max(half+1, 1), max(o.Size-ringrules.HeaderSize, 1)}
	}
	p := mustPlan(t, n, o)
	if n(o.Size, 0) == nil {
		t.Fatalf("ringtest: New returned nil for %d bytes", o.Size)
	}
	histories, choices, failure := p.Exhaust()
	if failure != nil {
		harness.Report(t, "ringtest", fmt.Sprintf("%d histories", histories), failure, nil)
	}
	t.Logf("ringtest: all %d histories of up to %d operations out of %d, on %d bytes", histories, o.Depth, choices,
		o.Size)
}
