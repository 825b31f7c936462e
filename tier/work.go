package tier

import (
	"errors"
	"time"
)

// Work is a call of a lower level in the background.
type Work struct {
	// Kind is "look up" for whether the level has objects, "fetch" from the level into memory, and "write back" to the
	// level.
	Kind  string
	Level string
	Begin time.Time
	Took  time.Duration
	Keys  []Key // of the objects
	Done  int   // of them: those that the level has, gave or took
	Bytes int64 // of those that it gave or took
	Err   error // of the first one of the others, unless the level just does not have it
}

// begun is when a call begins, for worked. It is zero if nobody wants to know.
func (sh *shared) begun() (now time.Time) {
	if sh.options.Work != nil {
		now = time.Now()
	}
	return now
}

// worked tells of a call that began at a time, and has ended. answer returns what became of each of n objects.
func (sh *shared) worked(kind string, l *lower, begin time.Time, n int, answer func(i int) (Key, int64, error)) {
	if sh.options.Work == nil || n == 0 {
		return
	}
	w := Work{Kind: kind, Level: l.name, Begin: begin, Took: time.Since(begin), Keys: make([]Key, n)}
	for i := range n {
		key, size, err := answer(i)
		w.Keys[i] = key
		switch {
		case err == nil:
			w.Done++
			w.Bytes += size
		case w.Err == nil && !isPlainMiss(err) && !errors.Is(err, ErrPending):
			w.Err = err
		}
	}
	sh.options.Work(w)
}
