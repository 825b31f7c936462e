package ringtest

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
)

// describe returns the text of a failure that no seed made.
func describe(f *fuzz.Failure) string {
	return fmt.Sprintf("%s: %v\n  why it matters: %s\n  of %d operations, these are enough:\n%s",
		f.Invariant, f.Err, f.Why, f.Found, strings.TrimSuffix("    "+strings.ReplaceAll(fuzz.Format(f.Ops), "\n", "\n    "), "\n    "))
}

// performed is an operation as it becomes a line.
type performed struct {
	name  string
	size  int
	first uint32
	ids   []uint32
}

// panicked returns where the panic that is being recovered from began.
func panicked() string {
	frames := make([]uintptr, 64)
	trace := runtime.CallersFrames(frames[:runtime.Callers(2, frames)])
	for inPanic := false; ; {
		frame, more := trace.Next()
		ours := !strings.HasPrefix(frame.Function, "runtime.")
		if inPanic && ours || !more {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		inPanic = inPanic || frame.Function == "runtime.gopanic"
	}
}

func (t *tester) failure(name, why string, err error) *fuzz.Failure {
	return &fuzz.Failure{Invariant: name, Why: why, Err: err, Ops: t.lines()}
}

// lines returns what was performed as operations.
func (t *tester) lines() []fuzz.Op {
	var out []fuzz.Op
	for _, p := range t.performed {
		args := map[string]any{"ring": "r"}
		switch p.name {
		case "ring.new":
			args["size"] = p.size
			if p.first != 0 {
				args["first_id"] = int64(p.first)
			}
			if t.Placement != "" {
				args["generation"] = t.Placement
			}
		case "ring.alloc":
			args["size"] = p.size
		case "ring.free":
			ids := []any{}
			for _, id := range p.ids {
				ids = append(ids, int64(id))
			}
			args["ids"] = ids
		}
		out = append(out, fuzz.Op{Name: p.name, Args: args})
	}
	return out
}
