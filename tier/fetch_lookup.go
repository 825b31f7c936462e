package tier

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lookup is what the levels answered so far about the fetches of a job. One worker at a time has it.
type lookup struct {
	found  map[*fetch]bool // object and level of the fetch are set
	misses map[*fetch]error
}

// runLookup asks one level for the objects of a job that the faster levels did not have. After the last level
// it queues the transfers of what was found.
func (f *fetcher) runLookup(j *job) {
	live := f.liveFetches(j)
	if j.lookup == nil {
		live = f.finishPresent(j.ctx, live)
		j.lookup = &lookup{map[*fetch]bool{}, map[*fetch]error{}}
		began := time.Now()
		for _, x := range live {
			x.began = began
			j.lookup.misses[x] = errNowhere(x.key)
		}
	}
	if rest := j.lookup.rest(live); len(rest) > 0 && j.level < len(f.lower) {
		level, begin := f.lower[j.level], f.begun()
		answers := j.lookup.ask(j.ctx, level, rest)
		f.worked("look up", level, begin, len(rest), func(i int) (Key, int64, error) { return rest[i].key, 0, answers[i].Err })
	}
	if len(j.lookup.rest(live)) > 0 && j.level+1 < len(f.lower) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.enqueue(&job{
			fetches: live, absent: j.absent, run: f.runLookup, level: j.level + 1, lookup: j.lookup,
			priority: j.priority, prefix: j.prefix, index: -1,
		})
		return
	}
	f.finishLookup(j, live)
}

// finishLookup finishes the fetches of what no level has, and queues the transfers of the rest.
func (f *fetcher) finishLookup(j *job, live []*fetch) {
	if j.prefix {
		j.lookup.dropBehindFirstMiss(live)
	}
	found := live[:0:0]
	for _, x := range live {
		if j.lookup.found[x] {
			found = append(found, x)
		}
	}
	p := plan{fetcher: f, ctx: j.ctx, asked: append(keysOf(j.fetches), j.absent...)}
	jobs := p.jobs(found)

	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range live {
		if err := j.lookup.misses[x]; err != nil {
			if isPlainMiss(err) {
				f.negative.add(x.key, x.version, x.began, err)
			}
			f.finish(x, err)
		}
	}
	for _, next := range jobs {
		for some := next; some != nil; some = some.next {
			some.priority = j.priority // as it is now: it may have been raised
		}
		f.enqueue(next)
	}
}

// liveFetches returns the fetches of a job in which somebody still has interest, and finishes the others.
func (f *fetcher) liveFetches(j *job) []*fetch {
	f.mu.Lock()
	defer f.mu.Unlock()
	var live []*fetch
	for _, x := range j.fetches {
		if x.hasInterest() {
			live = append(live, x)
		} else {
			f.finish(x, errCancelled)
		}
	}
	return live
}

// finishPresent finishes the fetches whose objects are in memory by now, or are being stored there, and
// returns the others.
func (f *fetcher) finishPresent(ctx context.Context, fetches []*fetch) []*fetch {
	found := f.memory.Stat(ctx, keysOf(fetches))
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := fetches[:0:0]
	for i, x := range fetches {
		switch err := found[i].Err; {
		case err == nil:
			f.succeed(x)
		case errors.Is(err, ErrPending):
			f.finish(x, errAskAgain)
		default:
			rest = append(rest, x)
		}
	}
	return rest
}

// rest returns the fetches that were not found yet.
func (l *lookup) rest(fetches []*fetch) []*fetch {
	rest := fetches[:0:0]
	for _, x := range fetches {
		if !l.found[x] {
			rest = append(rest, x)
		}
	}
	return rest
}

// ask asks a level, and notes what it has, and why it may have others all the same. It returns the level's answers.
func (l *lookup) ask(ctx context.Context, level *lower, fetches []*fetch) []Found {
	answers, ctxErr := level.stat(ctx, keysOf(fetches))
	for i, x := range fetches {
		switch err := answers[i].Err; {
		case err == nil:
			x.object, x.level = answers[i].Object, level.index
			l.found[x] = true
			delete(l.misses, x)
		case ctxErr != nil:
			l.misses[x] = errCancelled
		case errors.Is(err, ErrPending):
			l.misses[x] = errAskAgain
		case !errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt):
			l.misses[x] = addFailure(l.misses[x], err)
		}
	}
	return answers
}

// dropBehindFirstMiss gives up what was found behind the first object that no level has.
func (l *lookup) dropBehindFirstMiss(order []*fetch) {
	missed := false
	for _, x := range order {
		missed = missed || !l.found[x]
		if missed && l.found[x] {
			delete(l.found, x)
			l.misses[x] = errAskAgain
		}
	}
}

// errNowhere is the answer if no level has an object.
func errNowhere(k Key) error { return fmt.Errorf("tier: object %v: %w", k, ErrNotFound) }

// addFailure adds to a miss that a level could not be asked, or that its copy was damaged.
func addFailure(miss, err error) error {
	switch {
	case !isAnswer(miss), errors.Is(miss, ErrUnavailable):
		return miss
	case errors.Is(err, ErrCorrupt):
		return errors.Join(miss, err)
	}
	return fmt.Errorf("%w, and a level could not be asked: %w", miss, errors.Join(ErrUnavailable, err))
}

// keysOf returns the keys of fetches, in their order.
func keysOf(fetches []*fetch) []Key {
	keys := make([]Key, len(fetches))
	for i, x := range fetches {
		keys[i] = x.key
	}
	return keys
}
