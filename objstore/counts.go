package objstore

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/internal/invariants"
	"github.com/ringcache/ringcache/pycompat"
)

// counts are the uses of an object: every reader has to get it once for each.
type counts struct {
	uses   int64 // given out
	unsent int64 // of them, to requests that were not committed
}

// sent counts uses of a request that is committed now.
func (c *counts) sent(uses int64) {
	c.unsent -= uses
	c.verify()
}

// counting is how the readers of a store count.
type counting struct {
	readers int  // that get every object
	touches bool // they count the touch of an object that was read before (vLLM 0.12 to 0.31)
}

func newCounting(readers int, g *pycompat.Generation) counting {
	return counting{readers, g.Counting == pycompat.CountTouch}
}

// Uses are counted for n children of a request if n > 0. raw is n for one handle of
// vLLM's own protocol, in which a touch is a use by itself.
const raw = -1

// use counts what the readers will count for n.
func (r counting) use(c *counts, key string, n int) (uses int64, err error) {
	switch {
	case n == raw:
		uses = 1
	case n < 1:
		return 0, fmt.Errorf("%w: %d uses of key %q", errInvalid, n, key)
	case n > math.MaxInt32 || !r.canUse(*c, 2*int64(n)):
		return 0, fmt.Errorf("%w: key %q was used %d times, and %d more would overflow the readers' count",
			ErrFull, key, c.uses, n)
	default:
		uses = r.each(c.uses > 0) + int64(n-1)*r.each(true)
	}
	c.uses += uses
	c.unsent += uses
	return uses, nil
}

// undoUse undoes use for a request that used n in all. The first use of an object
// counts less than the others, so that what is left may count less than it did.
func (r counting) undoUse(c *counts, n int, uses int64) {
	if n > 0 {
		c.uses -= int64(n-1) * r.each(true)
		c.uses -= r.each(c.uses > 1)
	} else {
		c.uses -= uses
	}
	c.unsent -= uses
	c.verify()
}

// reset begins anew with readers that have read nothing: only uses that were not sent
// are still to be read. One of them is the object's first now, also if it was not.
func (r counting) reset(c *counts) {
	c.uses = c.unsent
	if r.touches && c.unsent > 0 {
		handles := (c.unsent + 1) / 2
		c.uses = r.each(false) + (handles-1)*r.each(true)
	}
}

// each is what the readers count for a handle. again reports that it is not the
// object's first.
func (r counting) each(again bool) int64 {
	if again && r.touches {
		return 2
	}
	return 1
}

// canUse reports whether so many more uses can be counted. Reads are an int32 in the
// segment: an object that was used 2^31 times could never become free, and a worker
// that counted on would fail.
func (r counting) canUse(c counts, more int64) bool {
	return (c.uses+more)*int64(r.readers) < math.MaxInt32
}

// verify panics in builds that check invariants if counts are wrong.
func (c counts) verify() {
	if invariants.Enabled {
		invariants.Must(c.check())
	}
}

// check returns what is wrong with counts.
func (c counts) check() error {
	if c.uses < 0 || c.unsent < 0 {
		return fmt.Errorf("%d uses, %d of them not sent", c.uses, c.unsent)
	}
	return nil
}
