package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	mostWaiting = 1024            // records of the log that wait to be written; those beyond are dropped
	flushTime   = 2 * time.Second // how long the end waits for who reads the log
)

// asyncHandler hands records to the handler behind it from a goroutine of its own: what writes to a log that
// nobody reads would wait, and clients cause lines, with turns and locks in hand.
// See docs/decisions.md, "The daemon's log drops lines rather than wait".
type asyncHandler struct {
	slog.Handler // behind it; it decides what is enabled
	log          *asyncLog
}

// newAsyncHandler returns a handler that never waits, and its log, which has to be flushed at the end. If h
// is such a handler already, it is returned, and the log is nil: it is somebody else's.
func newAsyncHandler(h slog.Handler) (slog.Handler, *asyncLog) {
	if _, is := h.(asyncHandler); is {
		return h, nil
	}
	l := &asyncLog{base: h}
	return asyncHandler{h, l}, l
}

// Handle implements slog.Handler.
func (h asyncHandler) Handle(_ context.Context, r slog.Record) error {
	h.log.add(asyncRecord{h.Handler, r.Clone()})
	return nil
}

// WithAttrs implements slog.Handler.
func (h asyncHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return asyncHandler{h.Handler.WithAttrs(attrs), h.log}
}

// WithGroup implements slog.Handler.
func (h asyncHandler) WithGroup(name string) slog.Handler {
	return asyncHandler{h.Handler.WithGroup(name), h.log}
}

// asyncLog has the records that wait.
type asyncLog struct {
	base slog.Handler // gets what is said about the log itself

	mu      sync.Mutex // guards what follows
	waiting []asyncRecord
	dropped int
	written chan struct{} // closed when nothing waits any more; nil if nothing does. A goroutine writes meanwhile
}

// asyncRecord is a record with the handler behind ours, which has the attributes of its logger.
type asyncRecord struct {
	to     slog.Handler
	record slog.Record
}

// add queues a record, and starts a goroutine that writes if none does.
func (l *asyncLog) add(r asyncRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= mostWaiting {
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
func (l *asyncLog) write() {
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
func (l *asyncLog) flush(limit time.Duration) {
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
