package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ringcache/ringcache/bench/internal/process"
)

// environment is what jobs share: processes in Python, which take seconds to start.
type environment struct {
	options  options
	python   map[string]*process.Process // by what each is for
	versions map[string]string
	jobs     int
}

func newEnvironment(o options) *environment {
	return &environment{options: o, python: map[string]*process.Process{}, versions: map[string]string{}}
}

// start returns the Python process for a purpose, and starts it if there is none.
func (e *environment) start(purpose string) (*process.Process, error) {
	if p := e.python[purpose]; p != nil {
		return p, nil
	}
	if e.options.Python == "" {
		return nil, fmt.Errorf("an interpreter with vLLM is %w", errUnavailable)
	}
	cmd := exec.Command(e.options.Python, filepath.Join(e.options.Scripts, "peer.py"), purpose)
	cmd.Env = append(os.Environ(), "VLLM_LOGGING_LEVEL=ERROR")
	if purpose == "encoder" { // memory that was freed is used again, with its pages, as torch does on a device
		cmd.Env = append(cmd.Env, "MALLOC_MMAP_MAX_=0", fmt.Sprintf("MALLOC_TRIM_THRESHOLD_=%d", math.MaxInt64))
	}
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	e.python[purpose] = p
	var about struct {
		answer
		Versions map[string]string `json:"versions"`
	}
	if err := p.Receive(&about); err != nil {
		return nil, err
	}
	for name, v := range about.Versions {
		e.versions[name] = v
	}
	return p, about.err()
}

// giveUp forgets a process that ended by itself.
func (e *environment) giveUp(p *process.Process) {
	for purpose, q := range e.python {
		if p == q {
			delete(e.python, purpose)
			_ = p.Close() // it has ended, with an error that was reported
		}
	}
}

// Close ends all processes.
func (e *environment) Close() (err error) {
	for _, p := range e.python {
		err = errors.Join(err, p.Close())
	}
	return err
}

// answer is what every answer of a Python process may have.
type answer struct {
	Error   string    `json:"error"`
	Samples []float64 `json:"samples"`
}

func (a answer) err() error {
	if a.Error != "" {
		return errors.New("the peer: " + a.Error)
	}
	return nil
}
