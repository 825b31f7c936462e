package ringrules

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
)

type invariant = fuzz.Invariant[*Step]

// Invariants returns what is checked after each operation, in this order. fifo, placement and
// stale-at-once are off unless [Options] switches them on.
func Invariants() []fuzz.Invariant[*Step] {
	return []invariant{bounds, noOverlap, headers, payloads, live, fifo, idWindow, idsUnique, refusal, staleHandle,
		staleAtOnce, drain, placement}
}

var bounds = invariant{
	Name: "bounds",
	Why:  "a chunk that is not inside the memory, or lies across its end, is read from bytes of others or from none",
	Holds: func(s *Step) error {
		for _, c := range s.Live {
			if !c.inside(len(s.Memory)) {
				return fmt.Errorf("chunk %d with a payload of %d bytes at address %d, offset %d, is not inside %d bytes", c.ID, c.Size, c.Address, c.Offset(len(s.Memory)), len(s.Memory))
			}
		}
		return nil
	},
}

var noOverlap = invariant{
	Name: "no-overlap",
	Why:  "a byte that two live chunks have is written by one and read by the other",
	Holds: func(s *Step) error {
		n := len(s.Memory)
		sorted := slices.SortedFunc(slices.Values(s.Live), func(a, b Chunk) int { return a.Offset(n) - b.Offset(n) })
		for i := 1; i < len(sorted); i++ {
			a, b := sorted[i-1], sorted[i]
			if a.End(n) > b.Offset(n) {
				return fmt.Errorf("chunk %d has the bytes %d to %d, chunk %d has %d to %d", a.ID, a.Offset(n),
					a.End(n), b.ID, b.Offset(n), b.End(n))
			}
		}
		return nil
	},
}

var headers = invariant{
	Name: "headers",
	Why:  "a reader has the address and the id only: the header must confirm the id and have the size",
	Holds: func(s *Step) error {
		for _, c := range s.Live {
			if id, size := c.header(s.Memory); id != c.ID || int64(size) != int64(c.Size)+HeaderSize {
				return fmt.Errorf("chunk %d of %d bytes at offset %d: its header has id %d and %d bytes", c.ID,
					c.Size+HeaderSize, c.Offset(len(s.Memory)), id, size)
			}
		}
		return nil
	},
}

var payloads = invariant{
	Name: "payload",
	Why:  "what was written to a live chunk stays until the chunk is freed",
	Holds: func(s *Step) error {
		for _, c := range s.Live {
			if got := c.payload(s.Memory); !bytes.Equal(got, c.Payload) {
				return fmt.Errorf("the payload of chunk %d at offset %d is %x, and %x was written", c.ID,
					c.Offset(len(s.Memory)), got, c.Payload)
			}
		}
		return nil
	},
}

var live = invariant{
	Name: "live",
	Why:  "a chunk is live from Alloc until it is freed once, on request: one that is lost is never freed, one that stays takes room for ever",
	Holds: func(s *Step) error {
		for i, id := range s.Freed {
			is := func(c Chunk) bool { return c.ID == id }
			if !slices.Contains(s.Asked, id) || !slices.ContainsFunc(s.WasLive, is) ||
				slices.Contains(s.Freed[:i], id) {
				return fmt.Errorf("of the ids %d, Free returned %d, where %d was not live, not asked for, or there before", s.Asked, s.Freed, id)
			}
		}
		want := map[uint32]uint64{}
		for _, c := range s.Live {
			want[c.ID] = c.Address
		}
		if !maps.Equal(want, s.Listed) {
			return fmt.Errorf("live is %v, and should be %v", s.Listed, want)
		}
		return nil
	},
}

var fifo = invariant{
	Name: "fifo",
	Why:  "vLLM frees the oldest chunk first, and none before one that has to stay",
	Holds: func(s *Step) error {
		if s.Op != "ring.free" {
			return nil
		}
		var want []uint32
		for _, c := range s.WasLive {
			if !slices.Contains(s.Asked, c.ID) {
				break
			}
			want = append(want, c.ID)
		}
		if !slices.Equal(want, s.Freed) {
			return fmt.Errorf("of the ids %d, %d were freed, and should be %d", s.Asked, s.Freed, want)
		}
		return nil
	},
}

var idWindow = invariant{
	Name: "id-window",
	Why:  "ids are int32 in the header and count up modulo 2^31; recovery and comparison of rings rely on the first and the next one",
	Holds: func(s *Step) error {
		if s.New != nil && s.New.ID != s.Before.IDEnd {
			return fmt.Errorf("the id of the new chunk is %d, and the next one was to be %d", s.New.ID, s.Before.IDEnd)
		}
		if s.New != nil && (s.New.ID >= idLimit || s.State.IDEnd != (s.New.ID+1)%idLimit) {
			return fmt.Errorf("after the id %d the next one is %d, modulo 2^31 it is %d", s.New.ID, s.State.IDEnd,
				(s.New.ID+1)%idLimit)
		}
		if s.State.IDStart >= idLimit || s.State.IDEnd >= idLimit {
			return fmt.Errorf("the window of ids, %d to %d, is not below 2^31", s.State.IDStart, s.State.IDEnd)
		}
		first := s.State.IDEnd
		if len(s.Live) > 0 {
			first = s.Live[0].ID
		}
		if s.State.IDStart != first {
			return fmt.Errorf("the window of ids begins at %d, and the oldest live one is %d", s.State.IDStart, first)
		}
		return nil
	},
}

var idsUnique = invariant{
	Name: "ids-unique",
	Why:  "a handle of a chunk that is gone would match a new one",
	Holds: func(s *Step) error {
		if s.New != nil && s.issued[s.New.ID] > 1 {
			return fmt.Errorf("the id %d was given out before", s.New.ID)
		}
		return nil
	},
}

var refusal = invariant{
	Name: "refusal",
	Why:  "who was refused tries again after a free: the ring must be as it was",
	Holds: func(s *Step) error {
		if s.Refused != nil && s.State != s.Before {
			return fmt.Errorf("%d bytes were refused (%w), and the position changed from %+v to %+v", s.Size,
				s.Refused, s.Before, s.State)
		}
		return nil
	},
}

var staleHandle = invariant{
	Name:  "stale-handle",
	Why:   "a reader with the handle of a chunk that was freed must notice when its bytes are another's",
	Holds: func(s *Step) error { return staleMatches(s) },
}

var staleAtOnce = invariant{
	Name:  "stale-at-once",
	Why:   "a reader that looks at the id again after it used the payload is right only if the id went before the first byte did",
	Holds: func(s *Step) error { return s.stale },
}

// staleMatches reports a freed chunk whose id still stands in memory and whose bytes a live one has.
func staleMatches(s *Step) error {
	n := len(s.Memory)
	for _, old := range s.Stale {
		if !old.matches(s.Memory) || old.byChance(s) {
			continue
		}
		for _, c := range s.Live {
			if c.Offset(n) < old.End(n) && old.Offset(n) < c.End(n) {
				return fmt.Errorf("the handle of chunk %d at offset %d still matches, but chunk %d has bytes of it, from %d to %d", old.ID, old.Offset(n), c.ID, c.Offset(n), c.End(n))
			}
		}
	}
	return nil
}

var drain = invariant{
	Name: "drain",
	Why:  "when nothing is live, all of the memory must be there again; what is lost each time adds up",
	Holds: func(s *Step) error {
		if s.Op == "ring.clear" || s.Op == "ring.free" && !slices.ContainsFunc(s.WasLive, func(c Chunk) bool {
			return !slices.Contains(s.Asked, c.ID)
		}) {
			if len(s.Live) > 0 {
				return fmt.Errorf("every chunk was given free, and %d of %d stay", len(s.Live), len(s.WasLive))
			}
		}
		if s.Refused != nil && len(s.WasLive) == 0 && s.Size > 0 && s.Size <= s.largest() {
			return fmt.Errorf("nothing is live, and %d bytes were refused (%w); a new ring takes %d", s.Size,
				s.Refused, s.largest())
		}
		return nil
	},
}

var placement = invariant{
	Name: "placement",
	Why:  "golden traces, simulations and a second writer expect the addresses and ids that vLLM gives",
	Holds: func(s *Step) error {
		want := s.expected
		if want == nil { // after a recovery places are the ring's own
			return nil
		}
		switch {
		case (want.added == nil) != (s.New == nil):
			return fmt.Errorf("%d bytes: refused %v; by vLLM %v", s.Size, s.New == nil, want.added == nil)
		case s.New != nil && (s.New.Address != want.added.Address || s.New.ID != want.added.ID):
			return fmt.Errorf("%d bytes: address %d, id %d; vLLM has %d and %d", s.Size, s.New.Address, s.New.ID,
				want.added.Address, want.added.ID)
		case !slices.Equal(s.Freed, want.freed) && s.Op == "ring.free":
			return fmt.Errorf("freed %d of %d; vLLM frees %d", s.Freed, s.Asked, want.freed)
		}
		f := want.ring
		if at := (State{uint64(f.Start), uint64(f.End), f.IDStart, f.IDEnd}); s.State != at {
			return fmt.Errorf("the position is %+v; that of vLLM is %+v", s.State, at)
		}
		return nil
	},
}
