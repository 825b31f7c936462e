// Package tail keeps the end of what a process prints, for the error that reports the process.
package tail

import "sync"

// Buffer is a writer that keeps the last bytes written to it. Several goroutines may use it.
type Buffer struct {
	limit int

	mu sync.Mutex
	b  []byte
}

// New returns a buffer that keeps the last limit bytes.
func New(limit int) *Buffer { return &Buffer{limit: limit} }

// Write never fails.
func (t *Buffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if extra := len(t.b) - t.limit; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

func (t *Buffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
