package main

import (
	"errors"
	"os/exec"

	"github.com/ringcache/ringcache/bench/internal/process"
)

// peer is the process that runs the real vLLM, see interop/bench_peer.py.
type peer struct {
	*process.Process
	version string
}

func startPeer(python, script string) (*peer, error) {
	p, err := process.Start(exec.Command(python, script))
	return &peer{Process: p}, err
}

// measure appends the median time of one operation in nanoseconds.
func (p *peer) measure(op string, size, rounds int, to *[]float64) error {
	if err := p.Send(map[string]any{"op": op, "size": size, "rounds": rounds}); err != nil {
		return err
	}
	var a struct {
		Median  float64 `json:"median_ns"`
		Version string  `json:"version"`
		Error   string  `json:"error"`
	}
	if err := p.Receive(&a); err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New("the peer: " + a.Error)
	}
	p.version = a.Version
	*to = append(*to, a.Median)
	return nil
}
