// Package loglimit bounds what is logged about events that anybody can cause as
// often as they like.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Interval is the least time between two messages of a Limit, or the time for Burst messages.
const Interval = time.Minute

// Limit lets one message pass in each Interval, or Burst messages, and counts the others.
// The zero value is ready to use.
type Limit struct {
	Burst int // 0 is 1

	mu      sync.Mutex
	next    time.Time
	passed  int // since the Interval before next began
	skipped int
}

// Warn logs a warning, or counts it. The next message that is logged has the count
// as its attribute "skipped".
func (l *Limit) Warn(log *slog.Logger, msg string, args ...any) {
	l.log(log, slog.LevelWarn, msg, args)
}

// Info is Warn for what is no warning.
func (l *Limit) Info(log *slog.Logger, msg string, args ...any) {
	l.log(log, slog.LevelInfo, msg, args)
}

func (l *Limit) log(log *slog.Logger, level slog.Level, msg string, args []any) {
	l.mu.Lock()
	if now := time.Now(); !now.Before(l.next) {
		l.next, l.passed = now.Add(Interval), 0
	}
	if l.passed >= max(1, l.Burst) {
		l.skipped++
		l.mu.Unlock()
		return
	}
	skipped := l.skipped
	l.passed, l.skipped = l.passed+1, 0
	l.mu.Unlock()
	if skipped > 0 {
		args = append(args[:len(args):len(args)], "skipped", skipped)
	}
	log.Log(context.Background(), level, msg, args...)
}
