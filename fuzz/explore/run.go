package explore

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Run is one execution of a program. Its methods that declare something are called by the
// program before it returns; the processes begin then.
type Run struct {
	processes []*Process
	current   *Process // nil: none of them runs
	shared    []shared
	state     func() string
	always    []property
	atEnd     []property
	cleanups  []func()
	crashes   int // left
	yielded   chan struct{}
	watchdog  *time.Timer
	over      chan struct{} // closed: everything that is left ends itself, also a process that was stuck
	failure   *Failure
	trace     []TraceStep
	recording bool
}

// shared is a Var or a Lock.
type shared interface {
	text() string
	killed(p *Process)
}

// property is an invariant with its reason.
type property struct {
	name, why string
	holds     func() error
}

// Process declares a process. f must not touch what is shared before its first Step.
func (r *Run) Process(name string, f func(p *Process)) *Process {
	p := &Process{run: r, name: name, f: f, resume: make(chan struct{}), exited: make(chan struct{})}
	r.processes = append(r.processes, p)
	return p
}

// Always declares what must hold at the beginning and after every step. why is one sentence
// for people who see it broken.
func (r *Run) Always(name, why string, holds func() error) {
	r.always = append(r.always, property{name, why, holds})
}

// AtEnd declares what must hold once every process has ended or was killed.
func (r *Run) AtEnd(name, why string, holds func() error) {
	r.atEnd = append(r.atEnd, property{name, why, holds})
}

// State declares a function that returns what is shared and no [Var] or [Lock], as text.
func (r *Run) State(text func() string) { r.state = text }

// Cleanup declares what is called after the execution, when no process runs any more.
func (r *Run) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// Access is [Process.Access] of the process that runs, for hooks in code that has no Process. It
// does nothing if no process runs.
func (r *Run) Access(what string) {
	if p := r.current; p != nil {
		p.Access(what)
	}
}

// Saw is [Process.Saw] of the process that runs.
func (r *Run) Saw(v any) {
	if p := r.current; p != nil {
		p.Saw(v)
	}
}

// text returns what is shared.
func (r *Run) text() string {
	var parts []string
	for _, s := range r.shared {
		parts = append(parts, s.text())
	}
	if r.state != nil {
		parts = append(parts, r.state())
	}
	return strings.Join(parts, " ")
}

// execute runs a program along a path. What is left of the run afterwards is in its fields; the
// caller calls end.
func execute(o Options, program func(*Run), path []choice, recording bool) *Run {
	r := &Run{yielded: make(chan struct{}), over: make(chan struct{}), watchdog: time.NewTimer(o.Timeout),
		crashes: o.Crashes, recording: recording}
	program(r)
	for _, p := range r.processes {
		go p.main()
		if !r.resume(p) {
			return r
		}
		p.steps = 0
	}
	r.check(r.always)
	for _, c := range path {
		if r.failure != nil {
			return r
		}
		r.take(c)
	}
	if r.failure == nil && r.finished() {
		r.check(r.atEnd)
	}
	return r
}

// take does one choice of a path.
func (r *Run) take(c choice) {
	p := r.processes[c.process]
	what := p.pending
	if c.kill {
		what = "is killed, before: " + what
		r.crashes--
		p.kill()
	} else {
		p.step()
	}
	if r.recording {
		for _, v := range p.notes {
			what += " -> " + v
		}
		r.trace = append(r.trace, TraceStep{Process: p.name, What: what, State: r.text()})
	}
	p.notes = nil
	if r.failure == nil {
		r.check(r.always)
	}
}

// resume lets a process go on until its next step. It returns false if the process does not get there.
func (r *Run) resume(p *Process) bool {
	r.current = p
	p.resume <- struct{}{}
	select {
	case <-r.yielded:
		r.current = nil
		return true
	case <-r.watchdog.C:
		r.fail("stuck", "a process may only block in Wait and Lock",
			fmt.Errorf("%s does not come to its next step: it waits for something that the explorer does not see, or does not end", p.name))
		p.stuck = true
		return false
	}
}

func (r *Run) check(properties []property) {
	for _, q := range properties {
		if err := q.holds(); err != nil {
			r.fail(q.name, q.why, err)
			return
		}
	}
}

func (r *Run) fail(name, why string, err error) {
	if r.failure == nil {
		r.failure = &Failure{Name: name, Why: why, Err: err}
	}
}

func (r *Run) finished() bool {
	for _, p := range r.processes {
		if !p.ended() {
			return false
		}
	}
	return true
}

// choices returns what can happen next: nothing if the run is finished, or failed.
func (r *Run) choices() (all []choice) {
	if r.failure != nil {
		return nil
	}
	for i, p := range r.processes {
		if p.ready() {
			all = append(all, choice{process: i})
		}
	}
	if len(all) == 0 && !r.finished() {
		var waits []string
		for _, p := range r.processes {
			if !p.ended() {
				waits = append(waits, fmt.Sprintf("%s waits to do %q", p.name, p.pending))
			}
		}
		r.fail("deadlock", "a process that waits for ever stops everyone behind it",
			fmt.Errorf("%s", strings.Join(waits, ", ")))
		return nil
	}
	if r.crashes > 0 {
		for i, p := range r.processes {
			if p.killable && !p.ended() {
				all = append(all, choice{process: i, kill: true})
			}
		}
	}
	return all
}

// fingerprint is the same for two runs only if they can go on in the same ways.
func (r *Run) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%q", r.text())
	for _, p := range r.processes {
		fmt.Fprintf(h, "|%d %q %t %t %x", p.steps, p.pending, p.done, p.wasKilled, p.seen)
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// end ends what is left of the processes. Their deferred calls run then, and no check reads
// what they do any more.
func (r *Run) end() {
	close(r.over)
	for _, p := range r.processes {
		if p.stuck {
			continue // it can't be ended
		}
		select {
		case <-p.exited:
		case p.resume <- struct{}{}:
			<-p.exited
		}
	}
	r.watchdog.Stop()
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
}

// leave ends the goroutine of a process: not by a panic, which the code of the process might recover.
func leave() { runtime.Goexit() }

// isOver reports whether the execution has ended.
func (r *Run) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// yield hands over to the scheduler. It returns false if that no longer waits.
func (r *Run) yield() bool {
	select {
	case r.yielded <- struct{}{}:
		return true
	case <-r.over:
		return false
	}
}
