package explore

import (
	"crypto/sha256"
	"fmt"
	"runtime/debug"
)

// Process is a process of a [Run]. Its methods are called by its own function.
type Process struct {
	run  *Run
	name string
	f    func(p *Process)

	resume, exited chan struct{}
	pending        string      // what it does next
	condition      func() bool // of a Wait; nil: it can go on
	steps          int
	seen           [sha256.Size]byte // of everything that it saw
	notes          []string

	killable, wasKilled, done, stuck bool
}

// Killable declares that the process may be killed before any of its steps; see [Options].
// A killed process does nothing more. Its deferred calls run after the execution.
func (p *Process) Killable() *Process {
	p.killable = true
	return p
}

// Killed reports whether the process was killed. It is for other processes and properties.
func (p *Process) Killed() bool { return p.wasKilled }

// Ended reports whether the process was killed or its function has returned.
func (p *Process) Ended() bool { return p.ended() }

// Step ends the step before, and returns when the scheduler chooses this process again. What
// the process does from then on to its next Step is one step, described by the text.
func (p *Process) Step(format string, args ...any) {
	p.Wait(nil, format, args...)
}

// Wait is Step for a process that can only go on while ready reports true. ready must not
// change anything.
func (p *Process) Wait(ready func() bool, format string, args ...any) {
	p.yield(ready, fmt.Sprintf(format, args...))
	if p.run.state != nil {
		p.learn("all: " + p.run.state()) // it may look at anything
	}
}

// Access is Step for a process that passes all that it learns in this step to [Process.Saw].
// Orders in which it learnt the same are the same to it.
func (p *Process) Access(what string) { p.yield(nil, what) }

// Saw records what the process learnt from what [Run.State] shows. The value is printed in
// traces.
func (p *Process) Saw(v any) {
	text := fmt.Sprint(v)
	p.learn(text)
	if p.run.recording {
		p.notes = append(p.notes, text)
	}
}

// Failf ends the execution: the process found something wrong.
func (p *Process) Failf(format string, args ...any) {
	p.run.fail("assertion", "the process found by itself that something is wrong",
		fmt.Errorf("%s: %s", p.name, fmt.Sprintf(format, args...)))
	p.Step("failed")
}

func (p *Process) learn(text string) {
	p.seen = sha256.Sum256(append(p.seen[:], text...))
}

// yield hands over to the scheduler, and returns when that chooses the process.
func (p *Process) yield(ready func() bool, what string) {
	if p.run.isOver() {
		leave()
	}
	p.pending, p.condition = what, ready
	if !p.run.yield() {
		leave()
	}
	<-p.resume
	if p.run.isOver() {
		leave()
	}
}

// main is the goroutine of the process.
func (p *Process) main() {
	defer close(p.exited)
	defer func() {
		v := recover()
		if p.run.isOver() {
			return
		}
		if v != nil {
			p.run.fail("panic", "the code of a process panicked", fmt.Errorf("%s: %v\n%s", p.name, v, debug.Stack()))
		}
		p.done, p.pending = true, ""
		p.run.yield()
	}()
	<-p.resume
	if p.run.isOver() {
		return
	}
	p.f(p)
}

// step lets the process do what is pending.
func (p *Process) step() {
	p.steps++
	p.run.resume(p)
}

// kill ends the process as if by SIGKILL: its goroutine stays where it is.
func (p *Process) kill() {
	p.wasKilled, p.pending = true, ""
	for _, s := range p.run.shared {
		s.killed(p)
	}
}

func (p *Process) ended() bool { return p.done || p.wasKilled }

func (p *Process) ready() bool { return !p.ended() && (p.condition == nil || p.condition()) }
