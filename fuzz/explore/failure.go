package explore

import (
	"fmt"
	"strings"
)

// Failure is an order of steps that breaks an invariant.
type Failure struct {
	// Name is that of the invariant, or "deadlock", "panic", "assertion" (of [Process.Failf]),
	// "stuck" (a process blocked elsewhere than in Wait) or "not deterministic".
	Name  string
	Why   string
	Err   error
	Steps []TraceStep
}

// TraceStep is one step of a [Failure].
type TraceStep struct {
	Process string
	What    string
	State   string // of what is shared, afterwards
}

// Error returns the steps as a table.
func (f *Failure) Error() string {
	who, what := len("process"), len("does")
	for _, s := range f.Steps {
		who, what = max(who, len(s.Process)), max(what, len(s.What))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v\n", f.Name, f.Err)
	if f.Why != "" {
		fmt.Fprintf(&b, "why it matters: %s\n", f.Why)
	}
	line := func(n any, process, does, state string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%4v  %-*s  %-*s  %s", n, who, process, what, does, state),
			" ") + "\n")
	}
	line("step", "process", "does", "state afterwards")
	for i, s := range f.Steps {
		line(i+1, s.Process, s.What, s.State)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }
