package daemon

import "fmt"

// Hint is something about this machine or container that a daemon of a Config would suffer from.
type Hint struct {
	// Fatal reports that the daemon would not start.
	Fatal bool
	// Key is the setting that it is about; it may be empty.
	Key string
	// Text is what is wrong, and what to set.
	Text string
}

// hints collects Hints.
type hints []Hint

func (h *hints) add(fatal bool, key, format string, args ...any) {
	*h = append(*h, Hint{fatal, key, fmt.Sprintf(format, args...)})
}
