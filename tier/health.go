package tier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
)

// health is whether one lower level can be used. There are two independent states.
//
// Away or not. A level begins as not away. An answer of ErrUnavailable, a level that was closed, or a caller
// whose time ended makes it suspect (assess): one goroutine then probes the level with a Stat of a key that
// nobody has, and goes on while the probe fails. The first failed probe marks the level as away, the first
// answered one as back. A call that ends by the time limit of the level marks it as away at once; one that does
// not return marks nothing. A level that can't write, or has lost a part of its servers, can still be read.
// While a level is away, no call but the probe and Usage reaches it.
//
// Writes paused or not. A background write that failed for now pauses the background writes to the level
// (pauseWrites): for 50 ms, then twice as long after each further failure, at most 5 s. The pause ends by
// time; a write that the level answered, or the level's return, resets its length. A second failure in a row, of a level
// that can be read, is logged, and so is the write that ends this.
//
// mu is a leaf lock: calls of other parts are made without it.
//
// See docs/decisions.md, "Hosts wait for no random time".
type health struct {
	level   Level
	timeout time.Duration // of a call
	logger  *slog.Logger
	event   func(kind, error) // counts that the level is away, or back
	life    *lifetime
	changed func() // the level may be used again

	// A level may fail on and off for hours.
	awayLog, backLog, refusingLog, takingLog loglimit.Limit

	mu           sync.Mutex
	away         bool
	awaySince    time.Time
	probing      bool // a goroutine probes the level
	writesPaused bool
	pause        time.Duration // of writes, the last one; 0 after a success
	refusing     time.Time     // since when it takes no writes though it can be read, if that was logged; else zero
}

const (
	firstPause = 50 * time.Millisecond // after a probe, or after a write that failed
	maxPause   = 5 * time.Second
)

// probeKey is the key of an object that nobody has.
var probeKey = Key{Space: "ringcache", Name: "probe"}

// isAway reports whether the level is away.
func (h *health) isAway() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.away
}

// isWritable reports whether background writes may call the level now.
func (h *health) isWritable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.away && !h.writesPaused
}

// errAway is the answer in place of a call to a level that is away.
func (h *health) errAway() error {
	return fmt.Errorf("tier: level %s is away: %w", h.level.Name(), ErrUnavailable)
}

// assess returns the error of a call of the level as one about the object, and notes what it means for the
// level. ctx is the context of the caller, without the time limit of the level.
func (h *health) assess(ctx context.Context, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, ErrUnavailable):
		h.suspect()
	case errors.Is(err, fs.ErrClosed):
		h.suspect()
		err = fmt.Errorf("tier: level %s: %w: %w", h.level.Name(), ErrUnavailable, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		err = fmt.Errorf("tier: level %s needed more than %v: %w: %w", h.level.Name(), h.timeout, ErrUnavailable, err)
		h.markAway(err)
	case errors.Is(err, context.DeadlineExceeded):
		h.suspect()
	}
	return err
}

// suspect has the level probed, unless it is probed already.
func (h *health) suspect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.startProbe()
}

// startProbe is suspect with the lock held.
func (h *health) startProbe() {
	if h.probing || h.life.ctx.Err() != nil {
		return
	}
	h.probing = true
	h.life.Go(h.probe)
}

// probe asks the level until it answers: one goroutine alone, so that a level that hangs keeps nobody else
// waiting.
func (h *health) probe() {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		limited, cancel := context.WithTimeout(h.life.ctx, h.timeout)
		err := h.level.Stat(limited, []Key{probeKey})[0].Err
		cancel()
		switch {
		case h.life.ctx.Err() != nil:
			return
		case err == nil, errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable), errors.Is(err, ErrPending):
			h.markBack()
			pause = firstPause
		default:
			h.markAway(err)
		}
		// Also after an answer: a level that fails now and then is not asked all the time.
		if !h.life.sleep(pause) || h.finishProbe() {
			return
		}
	}
}

// finishProbe reports whether the level is not away. Then the next failure begins another probe.
func (h *health) finishProbe() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = h.away
	return !h.probing
}

// markAway takes the level out of use, and has it probed.
func (h *health) markAway(cause error) {
	h.mu.Lock()
	already := h.away
	if !already {
		h.away, h.awaySince = true, time.Now()
		h.refusing = time.Time{}
	}
	h.startProbe()
	h.mu.Unlock()
	if !already {
		h.awayLog.Warn(h.logger, "tier: a level is away, and is asked again until it answers: see to what the error says", "level",
			h.level.Name(), "error", cause)
		h.event(kindAway, cause)
	}
}

// markBack takes the level into use again.
func (h *health) markBack() {
	h.mu.Lock()
	since, was := h.awaySince, h.away
	if was {
		h.away, h.pause = false, 0
	}
	h.mu.Unlock()
	if was {
		h.backLog.Info(h.logger, "tier: a level is back", "level", h.level.Name(),
			"after", time.Since(since).Round(time.Millisecond).String())
		h.event(kindBack, nil)
		h.changed()
	}
}

// pauseWrites keeps background writes from the level for a while, after one that failed for now. It reports
// whether the write before that one was a success.
func (h *health) pauseWrites(cause error) (first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first = h.pause == 0
	if h.writesPaused {
		return first
	}
	if !first && !h.away && h.refusing.IsZero() {
		h.refusing = time.Now()
		h.refusingLog.Warn(h.logger, "tier: a level can be read and takes no writes; what is to be written waits in memory: see to what the error says",
			"level", h.level.Name(), "error", cause)
	}
	h.writesPaused = true
	h.pause = min(max(2*h.pause, firstPause), maxPause)
	pause := h.pause
	h.life.Go(func() {
		h.life.sleep(pause)
		h.mu.Lock()
		h.writesPaused = false
		h.mu.Unlock()
		h.changed()
	})
	return first
}

// writeAnswered notes that the level answered a write, so that the next pause is short again.
func (h *health) writeAnswered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pause = 0
	if !h.refusing.IsZero() {
		h.takingLog.Info(h.logger, "tier: a level takes writes again", "level", h.level.Name(),
			"after", time.Since(h.refusing).Round(time.Millisecond).String())
		h.refusing = time.Time{}
	}
}
