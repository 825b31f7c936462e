package ringtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness"
)

// Recover makes a ring from the memory that a crash left.
type Recover func(memory []byte) (Ring, error)

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
	s := p.subject(5000)
	s.Test = func(ops []fuzz.Op) *fuzz.Failure {
		c := crasher{tester: &tester{plan: p}, adopt: adopt}
		f := c.run(ops)
		images += c.images
		return f
	}
	failure, done, err := s.Find()
	if images == 0 && failure == nil && err == nil {
		err = errors.New("nothing was written")
	}
	harness.Report(t, "ringtest", fmt.Sprintf("%d operations and %d images", done, images), failure, err)
}

// crasher looks at images of what a tester does.
type crasher struct {
	*tester
	adopt  Recover
	images int
}

func (c *crasher) run(ops []fuzz.Op) (failure *fuzz.Failure) {
	defer harness.Recover(&failure, c.lines)
	c.watch = c.look
	for _, op := range ops {
		if f := c.do(op); f != nil {
			return f
		}
	}
	return c.drain()
}

func (c *crasher) look(s *Step, write func()) {
	before := bytes.Clone(s.Memory)
	var stores [][]byte
	observer, observed := c.ring.(StoreObserver)
	if observed {
		observer.OnStore(func() { stores = append(stores, bytes.Clone(s.Memory)) })
	}
	filled := s.New != nil
	write()
	if observed {
		observer.OnStore(func() {})
	}
	after := bytes.Clone(s.Memory)
	switch {
	case s.New != nil && !s.New.inside(len(s.Memory)):
		return // what follows reports it
	case filled || !observed: // the payload is filled by the test, whose stores are not observed
		stores = slices.Concat(stores, combinations(before, after, s.New))
	}
	for i, image := range append(stores, after) {
		c.images++
		if err := c.inspect(s, image, observed && !filled); err != nil && c.broken == nil {
			c.broken = c.failure(err.name, err.why, fmt.Errorf("image %d of %d: %w", i+1, len(stores)+1, err.err))
		}
	}
}

// finding is what is wrong with an image.
type finding struct {
	name, why string
	err       error
}

func (c *crasher) inspect(s *Step, image []byte, inOrder bool) *finding {
	var stay []Chunk
	for _, x := range s.WasLive {
		if !slices.Contains(s.Freed, x.ID) {
			stay = append(stay, x)
		}
	}
	reader := *s
	reader.Memory, reader.Live = image, stay
	for _, inv := range []invariant{headers, payloads} {
		if err := inv.Holds(&reader); err != nil {
			return &finding{"crash-reader", "a reader goes on after the writer died, with handles that were good", err}
		}
	}
	if inOrder {
		for _, old := range c.stale {
			if old.matches(image) && !bytes.Equal(old.payload(image), old.Payload) && !old.byChance(&reader) {
				return &finding{"crash-stale", "a reader that compares the id believes what stands behind it", fmt.Errorf("the handle of chunk %d matches, and its payload is another's", old.ID)}
			}
		}
	}
	if c.adopt != nil {
		if err := c.goOn(s, bytes.Clone(image), stay); err != nil {
			return &finding{"crash-recovery", "what was live and not in the operation must survive it", err}
		}
	}
	return nil
}

// goOn recovers a ring from an image and goes on with it.
func (c *crasher) goOn(s *Step, image []byte, stay []Chunk) error {
	r, err := c.adopt(image)
	if err != nil {
		return fmt.Errorf("it failed: %w", err)
	}
	next := &tester{plan: c.plan}
	next.start(r, c.size, 0)
	next.model = nil // places after a recovery are the ring's own
	listed := r.Live()
	for _, x := range slices.Concat(s.WasLive, newChunk(s)) { // oldest first
		address, there := listed[x.ID]
		if !slices.ContainsFunc(stay, func(y Chunk) bool { return y.ID == x.ID }) {
			if !there || address != x.Address {
				continue // the operation's own chunk may be there or not
			}
			x.Payload = bytes.Clone(x.payload(image)) // as far as it was filled
		}
		next.live = append(next.live, x)
		next.issued[x.ID] = 1
	}
	f := next.check(next.step("recover"))
	if f == nil {
		f = next.alloc(1, 0)
	}
	if f == nil {
		f = next.drain()
	}
	if f != nil {
		return fmt.Errorf("after it, %s: %w", f.Invariant, f.Err)
	}
	return nil
}

func newChunk(s *Step) []Chunk {
	if s.New == nil {
		return nil
	}
	return []Chunk{*s.New}
}

// combinations returns the images between two, by words that changed.
func combinations(before, after []byte, near *Chunk) [][]byte {
	phase := 0
	if near != nil {
		phase = near.Offset(len(before)) % 4
	}
	var words [][]int // indices of changed bytes
	last := -1
	for i := range before {
		if before[i] == after[i] {
			continue
		}
		if word := (i + 4 - phase) / 4; word != last {
			words, last = append(words, nil), word
		}
		words[len(words)-1] = append(words[len(words)-1], i)
	}
	var images [][]byte
	add := func(written func(word int) bool) {
		image := bytes.Clone(before)
		for w, indices := range words {
			for _, i := range indices {
				if written(w) {
					image[i] = after[i]
				}
			}
		}
		images = append(images, image)
	}
	n := len(words)
	if n <= 6 {
		for set := range 1 << n {
			add(func(w int) bool { return set>>w&1 == 1 })
		}
		return images
	}
	for k := range n {
		add(func(w int) bool { return w < k })
		add(func(w int) bool { return w >= k })
		add(func(w int) bool { return w == k })
		add(func(w int) bool { return w != k })
	}
	return images
}
