package tier

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Located is an object, and where it is.
type Located struct {
	Found
	// Levels are the names of the levels that have the object, fastest first.
	Levels []string
}

// Stat describes objects, in the order of the keys, and reports which levels have them. It asks every level,
// and so does input and output; what leases have is in [Store.Leases], and levels as a whole in
// [Store.State]. The error is nil if a level has the object, otherwise as that of Get, whose misses it shares for
// [Options].NegativeTTL: then lower levels are not asked.
func (s *Store) Stat(ctx context.Context, keys []Key) []Located {
	out := make([]Located, len(keys))
	if !s.life.enter() {
		for i := range out {
			out[i].Err = errClosedStore()
		}
		return out
	}
	defer s.life.leave()
	versions := make([]uint32, len(keys))
	every := make([]int, len(keys))
	for i, k := range keys {
		out[i].Err = errNowhere(k)
		versions[i], every[i] = s.fetcher.negative.version(k), i
	}
	note := func(name string, places []int, found []Found) {
		for i, f := range found {
			at := &out[places[i]]
			switch {
			case f.Err == nil:
				if len(at.Levels) == 0 {
					at.Found = f
				}
				at.Levels = append(at.Levels, name)
			case len(at.Levels) > 0 || isPlainMiss(f.Err):
			case errors.Is(f.Err, ErrPending):
				at.Err = f.Err
			case !errors.Is(at.Err, ErrPending):
				at.Err = addFailure(at.Err, f.Err)
			}
		}
	}
	note(s.memory.Name(), every, s.memory.Stat(ctx, keys))
	began, unknown := time.Now(), every[:0]
	for i, k := range keys {
		if isPlainMiss(out[i].Err) && s.fetcher.negative.get(k) != nil {
			continue
		}
		unknown = append(unknown, i)
	}
	for _, l := range s.lower {
		if len(unknown) == 0 {
			break
		}
		found, _ := l.stat(ctx, pick(keys, unknown))
		note(l.name, unknown, found)
	}
	if err := ctx.Err(); err != nil {
		for i := range out {
			if out[i].Err != nil {
				out[i].Err = err
			}
		}
	}
	for _, i := range unknown {
		if err := out[i].Err; err != nil && isPlainMiss(err) {
			s.fetcher.negative.add(keys[i], versions[i], began, err)
		}
	}
	return out
}

// List lists the objects of a space, or of all spaces if space is empty, in no order, and each once, whatever
// the number of levels that have it: the keys of the faster levels are in memory meanwhile. What a level
// answers in place of its objects comes last: the others are listed all the same.
func (s *Store) List(ctx context.Context, space string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if !s.life.enter() {
			yield(Object{}, errClosedStore())
			return
		}
		defer s.life.leave()
		seen := map[Key]bool{}
		var failed error
		list := func(objects iter.Seq2[Object, error], name string, last bool) bool {
			for o, err := range objects {
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("tier: listing level %s: %w", name, err))
					break
				}
				if seen[o.Key] {
					continue
				}
				if !last {
					seen[o.Key] = true
				}
				if !yield(o, nil) {
					return false
				}
			}
			return true
		}
		if !list(s.memory.List(ctx, space), s.memory.Name(), len(s.lower) == 0) {
			return
		}
		for _, l := range s.lower {
			if l.health.isAway() {
				failed = errors.Join(failed, l.health.errAway())
				continue
			}
			if !list(l.Level.List(ctx, space), l.name, l.index == len(s.lower)-1) {
				return
			}
		}
		if failed != nil {
			yield(Object{}, failed)
		}
	}
}

// State is what a store has and does now.
type State struct {
	Levels []LevelState // fastest first
	// Fetches is the number of objects on the way into memory.
	Fetches int
	// Queued is the number of jobs of fetches that wait for a worker, and InFlight the bytes that
	// workers move up or down.
	Queued   int
	InFlight int64
	// Backlog is the number of objects that wait to be written to lower levels, and BacklogBytes the bytes
	// of those that are pinned in memory for that.
	Backlog      int
	BacklogBytes int64
}

// LevelState is what a level has now.
type LevelState struct {
	Name  string
	Usage Usage
	// Away levels are asked in the background only, until they answer.
	Away bool
	// Backlog is the number of objects that wait to be written to the level.
	Backlog int
}

// State reports what the store has and does now. It does no input or output.
func (s *Store) State() State {
	out := State{Levels: []LevelState{{Name: s.memory.Name(), Usage: s.memory.Usage()}}}
	for _, l := range s.lower {
		out.Levels = append(out.Levels, LevelState{Name: l.name, Usage: l.Level.Usage(), Away: l.health.isAway()})
	}
	s.fetcher.addState(&out)
	s.writes.addState(&out)
	return out
}

// addState adds what the fetcher does.
func (f *fetcher) addState(out *State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out.Fetches, out.Queued = len(f.fetches), f.queue.Len()
	out.InFlight += f.budget.used
}

// addState adds what is pending, and what workers write.
func (w *writeBack) addState(out *State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.InFlight += w.budget.used
	out.BacklogBytes = w.bytes
	for _, p := range w.pending {
		if p.left != 0 {
			out.Backlog++
		}
		for _, l := range w.lower {
			if p.left.has(l) {
				out.Levels[1+l.index].Backlog++
			}
		}
	}
}
