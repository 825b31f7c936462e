package explore

import (
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"time"
)

// Options bound an exploration. With the zero value no process is killed.
type Options struct {
	// Crashes is how many of the processes that are Killable are killed in one order, at most.
	Crashes int
	// MaxExecutions ends the exploration after so many executions; 0 is 1,000,000.
	MaxExecutions int
	// MaxSteps cuts orders of more steps; 0 is 1000.
	MaxSteps int
	// NoPruning explores every order by itself, however many lead to the same state.
	NoPruning bool
	// Timeout bounds one execution, so that a process which blocks is found; 0 is two minutes.
	Timeout time.Duration
}

// Result is what an exploration found.
type Result struct {
	// Failure is the shortest order that breaks an invariant, nil if there is none.
	Failure *Failure
	// Orders is how many orders, from the first step to the end of the last process, the
	// exploration covered; MaxUint64 if there are more.
	Orders uint64
	// States is how many different states were reached, by so many Executions of the program.
	States, Executions int
	// Longest is the number of steps of the longest order.
	Longest int
	// Complete reports that nothing was left out: no bound was reached, and no failure ended
	// the exploration.
	Complete bool
}

// String returns the counts, and the counter-example if there is one.
func (r Result) String() string {
	s := fmt.Sprintf("%d orders of up to %d steps, %d states, %d executions", r.Orders, r.Longest, r.States,
		r.Executions)
	switch {
	case r.Failure != nil:
		return s + " until this:\n" + r.Failure.Error()
	case r.Complete:
		return "all orders are clean: " + s
	}
	return "a bound was reached, clean so far: " + s
}

// choice is what happens next: a process makes a step, or is killed.
type choice struct {
	process int
	kill    bool
}

// node is a state, with the way to it that was found first.
type node struct {
	parent  int // -1 for the first
	by      choice
	depth   int
	ways    uint64 // orders that lead to it
	choices []choice
}

// Explore runs every order of the processes that program declares. Shorter orders are run before
// longer ones, so the first that fails is a shortest.
func Explore(o Options, program func(*Run)) Result {
	if o.MaxExecutions == 0 {
		o.MaxExecutions = 1_000_000
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = 1000
	}
	if o.Timeout == 0 {
		o.Timeout = 2 * time.Minute
	}
	e := explorer{o: o, program: program, known: map[[sha256.Size]byte]int{}}
	e.res.Complete = true
	e.visit(-1, choice{})
	for i := 0; i < len(e.nodes) && e.res.Failure == nil; i++ { // nodes grows
		n := e.nodes[i]
		if n.depth >= o.MaxSteps && len(n.choices) > 0 {
			e.res.Complete = false
			continue
		}
		for _, c := range n.choices {
			if e.res.Executions >= o.MaxExecutions {
				e.res.Complete = false
				break
			}
			if e.visit(i, c); e.res.Failure != nil {
				break
			}
		}
		if len(n.choices) == 0 {
			e.res.Orders = add(e.res.Orders, e.nodes[i].ways)
		}
		e.nodes[i].choices = nil // not needed any more
	}
	e.res.States = len(e.nodes)
	e.res.Complete = e.res.Complete && e.res.Failure == nil
	return e.res
}

type explorer struct {
	o       Options
	program func(*Run)
	nodes   []node
	known   map[[sha256.Size]byte]int
	res     Result
}

// visit executes the order that leads to a node, then one choice more.
func (e *explorer) visit(parent int, c choice) {
	var path []choice
	depth, ways := 0, uint64(1)
	if parent >= 0 {
		path = append(e.path(parent), c)
		depth, ways = len(path), e.nodes[parent].ways
	}
	r := execute(e.o, e.program, path, false)
	defer r.end()
	e.res.Executions++
	e.res.Longest = max(e.res.Longest, depth)
	choices := r.choices()
	if r.failure != nil {
		e.res.Failure = e.explain(path, r.failure)
		return
	}
	if !e.o.NoPruning {
		sum := r.fingerprint()
		if i, ok := e.known[sum]; ok {
			e.nodes[i].ways = add(e.nodes[i].ways, ways)
			return
		}
		e.known[sum] = len(e.nodes)
	}
	e.nodes = append(e.nodes, node{parent: parent, by: c, depth: depth, ways: ways, choices: choices})
}

// path returns the choices that lead to a node.
func (e *explorer) path(i int) []choice {
	var path []choice
	for ; e.nodes[i].parent >= 0; i = e.nodes[i].parent {
		path = append(path, e.nodes[i].by)
	}
	slices.Reverse(path)
	return path
}

// explain executes a failing order again, for the trace.
func (e *explorer) explain(path []choice, f *Failure) *Failure {
	if f.Name == "stuck" {
		return e.explainStuck(path, f)
	}
	r := execute(e.o, e.program, path, true)
	defer r.end()
	r.choices() // finds a deadlock
	if r.failure == nil || r.failure.Name != f.Name {
		return &Failure{Name: "not deterministic", Why: "an order must do the same each time that it is executed",
			Err: fmt.Errorf("once it failed: %w; then: %v", f, r.failure), Steps: r.trace}
	}
	r.failure.Steps = r.trace
	return r.failure
}

// explainStuck executes an order again up to the step that does not end, which would take the
// timeout once more.
func (e *explorer) explainStuck(path []choice, f *Failure) *Failure {
	if len(path) == 0 {
		return f // it has not come to its first step
	}
	last := len(path) - 1
	r := execute(e.o, e.program, path[:last], true)
	defer r.end()
	if p := r.processes[path[last].process]; r.failure == nil {
		f.Steps = append(r.trace, TraceStep{Process: p.name, What: p.pending, State: "does not end"})
	}
	return f
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
