package fault

import (
	"fmt"
	"iter"
	"os"
	"os/exec"

	"github.com/ringcache/ringcache/internal/failpoint"
)

// Point is a place of a program at which a parent's [KillAt] can end it. Otherwise it does nothing.
func Point(name string) { failpoint.Reach(name) }

// Points yields the places of this module, and what was done just before each.
func Points() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, p := range failpoint.Points {
			if !yield(p.Name, p.When) {
				return
			}
		}
	}
}

// KillAt makes a command end itself by SIGKILL at the nth time, from 1, that it comes to a
// place. If it never comes there, it ends as usual.
func KillAt(cmd *exec.Cmd, place string, nth int) {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s:%d", failpoint.KillVariable, place, nth))
}
