// Package loglimit bounds what is logged about events that strangers can cause as
// often as they like.
package loglimit

import (
	"log/slog"
	"sync"
	"time"
)

// Interval is the least time between two messages of a Limit.
const Interval = time.Minute

// Limit lets one message pass in each Interval, and counts the others. The zero value
// is ready to use.
type Limit struct {
	mu      sync.Mutex
	next    time.Time
	skipped int
}

// Warn logs a warning, or counts it. The next warning that is logged has the count
// as its attribute "skipped".
func (l *Limit) Warn(log *slog.Logger, msg string, args ...any) {
	l.mu.Lock()
	now := time.Now()
	if now.Before(l.next) {
		l.skipped++
		l.mu.Unlock()
		return
	}
	skipped := l.skipped
	l.next, l.skipped = now.Add(Interval), 0
	l.mu.Unlock()
	if skipped > 0 {
		args = append(args[:len(args):len(args)], "skipped", skipped)
	}
	log.Warn(msg, args...)
}
