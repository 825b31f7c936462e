package daemon

import (
	"cmp"
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

// SegmentBytes is what the segment, its sidecar and its table of leases take of shared memory, rounded up generously.
func (c Config) SegmentBytes() int64 {
	objects := int64(c.MaxObjects)
	if objects == 0 {
		objects = min(max(c.Size/(8<<10), 1<<10), 1<<20)
	}
	leases := int64(cmp.Or(c.MaxLeases, 4096)) + 1
	return c.Size + 64*objects + 64*2*objects + 576*leases + 256<<10
}
