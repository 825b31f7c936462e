package ringrules

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/internal/harness/rules"
)

// Recover makes a ring from the memory that a crash left.
type Recover func(memory []byte) (Ring, error)

// Crash is Run with a look at the memory as a crash in each operation could leave it; see Crash of
// package ringtest. images is how many memories there were.
func (p *Plan) Crash(ops []fuzz.Op, adopt Recover) (images int, failure *fuzz.Failure) {
	c := crasher{tester: &tester{Plan: p}, adopt: adopt}
	failure = c.run(ops)
	return c.images, failure
}

// crasher looks at images of what a tester does.
type crasher struct {
	*tester
	adopt  Recover
	images int
}

func (c *crasher) run(ops []fuzz.Op) (failure *fuzz.Failure) {
	defer rules.Recover(&failure, c.lines)
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
				return &finding{"crash-stale", "a reader that compares the id believes what stands behind it",
					fmt.Errorf("the handle of chunk %d matches, and its payload is another's", old.ID)}
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
	next := &tester{Plan: c.Plan}
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
