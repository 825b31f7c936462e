package system

import (
	"fmt"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// BrokenError reports that a system died, hangs, or answered what is no reply. It can't be used
// any more.
type BrokenError struct {
	// Done is the number of operations of the last Do that were answered: the next one broke the
	// system.
	Done int
	Err  error
	// Stderr is the end of what a process wrote there.
	Stderr string
}

// Error ends with what the program wrote to stderr.
func (e *BrokenError) Error() string {
	text := e.Err.Error()
	if e.Stderr != "" {
		text += "\n  its stderr ended with:\n    " + strings.ReplaceAll(strings.TrimSpace(e.Stderr), "\n", "\n    ")
	}
	return text
}

// Unwrap returns Err.
func (e *BrokenError) Unwrap() error { return e.Err }

// panicked is what the agent answers after it recovered from a panic.
const panicked = "internal error, please report it"

func parseReply(line []byte) (fuzz.Reply, error) {
	r, err := fuzz.ParseReply(line)
	if err == nil && r.Kind == "invalid" && strings.Contains(r.Text, panicked) {
		err = fmt.Errorf("it panicked: %s", r.Text)
	}
	return r, err
}
