package daemon

import (
	"fmt"
	"log/slog"
)

// Finding is something that was looked at for a daemon of a Config.
type Finding struct {
	// Level is Info if all is right, Warn if the daemon starts and would suffer, Error if it would not start.
	Level slog.Level
	// Key is the setting that it is about; it may be empty.
	Key string
	// Text is what was found, and if that is not right, what to set.
	Text string
}

// findings collects Findings.
type findings []Finding

func (f *findings) add(level slog.Level, key, format string, args ...any) {
	*f = append(*f, Finding{level, key, fmt.Sprintf(format, args...)})
}
