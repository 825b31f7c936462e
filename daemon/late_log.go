package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	mostLate  = 1024            // records of the log that wait to be written; those beyond are dropped
	flushTime = 2 * time.Second // how long the end waits for who reads the log
)

// lateHandler hands records to the handler behind it from a goroutine of its own: what writes to a log that nobody reads would wait, and
// clients cause lines, with turns and locks in hand.
type lateHandler struct {
	slog.Handler // behind it; it decides what is enabled
	log          *lateLog
}

// late returns a handler that never waits, and its log, which has to be flushed at the end. If h is such a handler already, it is returned, and the log is nil:
// it is somebody else's.
func late(h slog.Handler) (slog.Handler, *lateLog) {
	if _, is := h.(lateHandler); is {
		return h, nil
	}
	l := &lateLog{base: h}
	return lateHandler{h, l}, l
}

// Handle implements slog.Handler.
func (h lateHandler) Handle(_ context.Context, r slog.Record) error {
	h.log.add(lateRecord{h.Handler, r.Clone()})
	return nil
}

// WithAttrs implements slog.Handler.
func (h lateHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lateHandler{h.Handler.WithAttrs(attrs), h.log}
}

// WithGroup implements slog.Handler.
func (h lateHandler) WithGroup(name string) slog.Handler {
	return lateHandler{h.Handler.WithGroup(name), h.log}
}

// lateLog has the records that wait.
type lateLog struct {
	base slog.Handler // gets what is said about the log itself

	mu      sync.Mutex // guards what follows
	waiting []lateRecord
	dropped int
	written chan struct{} // closed when nothing waits any more; nil if nothing does. A goroutine writes meanwhile
}

type lateRecord struct {
	to     slog.Handler
	record slog.Record
}

func (l *lateLog) add(r lateRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= mostLate {
		l.dropped++
		return
	}
	l.waiting = append(l.waiting, r)
	if l.written == nil {
		l.written = make(chan struct{})
		go l.write()
	}
}

// write writes until nothing waits.
func (l *lateLog) write() {
	for {
		l.mu.Lock()
		records, dropped := l.waiting, l.dropped
		l.waiting, l.dropped = nil, 0
		if len(records) == 0 && dropped == 0 {
			close(l.written)
			l.written = nil
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		for _, r := range records {
			_ = r.to.Handle(context.Background(), r.record) // nobody is told, as by slog
		}
		if dropped > 0 {
			slog.New(l.base).Warn("lines of the log were dropped here: whoever reads it is too slow", "lines", dropped)
		}
	}
}

// flush waits until everything is written, but not for ever.
func (l *lateLog) flush(limit time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-written:
	case <-t.C:
	}
}
