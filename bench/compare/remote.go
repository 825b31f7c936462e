package main

import (
	"cmp"
	"errors"

	"github.com/ringcache/ringcache/bench/internal/process"
)

// remote is a job that a process in Python does and times.
type remote struct {
	peer    string
	env     *environment
	purpose string // of the process; empty is "vllm"
	process *process.Process
	id      int
	more    map[string]any // further arguments of prepare
}

var errEnded = errors.New("the process of the peer has ended")

// inPython is the job of the case's name in the process with vLLM.
func inPython(peer string) maker { return pythonAt(peer, nil) }

func pythonAt(peer string, at func(Case) bool) maker {
	return maker{make: func(e *environment) Job { return &remote{peer: peer, env: e} }, at: at}
}

func (r *remote) Peer() string { return r.peer }

func (r *remote) Prepare(c Case) (err error) { return r.prepare(cmp.Or(r.purpose, "vllm"), c) }

func (r *remote) prepare(purpose string, c Case) (err error) {
	if r.process, err = r.env.start(purpose); err != nil {
		r.process = nil
		return err
	}
	r.env.jobs++
	r.id = r.env.jobs
	rows, columns := shapeOf(c.Size)
	_, err = r.call(map[string]any{"op": "prepare", "case": c, "shape": []int{rows, columns}, "more": r.more})
	return err
}

func (r *remote) Run(n int) ([]float64, error) {
	a, err := r.call(map[string]any{"op": "run", "n": n})
	return a.Samples, err
}

func (r *remote) Close() error {
	if r.process == nil || r.id == 0 {
		return nil
	}
	_, err := r.call(map[string]any{"op": "close"})
	return err
}

// call sends a request and waits for the answer. A process that does not answer any more is given up: the
// jobs of the next case get another one.
func (r *remote) call(request map[string]any) (a answer, err error) {
	if r.process == nil {
		return a, errEnded
	}
	request["id"] = r.id
	if err = r.process.Send(request); err == nil {
		err = r.process.Receive(&a)
	}
	if err != nil {
		r.env.giveUp(r.process)
		r.process = nil
		return a, err
	}
	return a, a.err()
}
