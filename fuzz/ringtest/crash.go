package ringtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
)

// Crash performs random sequences as [Check] does, and looks at the memory as a crash in each
// operation could leave it. In each of these images
//
//   - a reader with the handle of a chunk that was live before the operation, and that the
//     operation does not free, finds its header and its payload (crash-reader);
//   - a reader with the handle of a chunk that was freed finds another id or the old payload, if
//     the ring is a [StoreObserver] (crash-stale);
//   - adopt, unless it is nil, makes a ring in which these chunks are live, and beside them at
//     most the one that the operation allocates or frees; and which goes on to fulfil all
//     invariants, ids-unique for what is live (crash-recovery).
//
// Of a StoreObserver the images are those between any two stores, in the order in which the ring
// makes them. Else they are made from the memory before and after each call: the words that
// changed, of 4 bytes counted from the new chunk, in every combination if there are up to 6 of
// them, which includes every order; and for more, in the order of addresses, in the opposite order,
// each alone, and all but each. What a call changes and changes back is not seen then. Neither way
// shows what a processor with a weak memory order makes of the stores.
func Crash(t testing.TB, n New, o Options, adopt Recover) {
	t.Helper()
	if o.Size == 0 {
		o.Size = 120
	}
	p := mustPlan(t, n, o)
	images := 0
	s := subject(p, 5000)
	s.Test = func(ops []fuzz.Op) *fuzz.Failure {
		n, f := p.Crash(ops, adopt)
		images += n
		return f
	}
	failure, done, err := s.Find()
	if images == 0 && failure == nil && err == nil {
		err = errors.New("nothing was written")
	}
	harness.Report(t, "ringtest", fmt.Sprintf("%d operations and %d images", done, images), failure, err)
}
