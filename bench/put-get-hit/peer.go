package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// peer is the process that runs the real vLLM, see interop/bench_peer.py.
type peer struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	version string
}

func startPeer(python, script string) (*peer, error) {
	cmd := exec.Command(python, script)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &peer{cmd: cmd, in: in, out: bufio.NewReader(out)}, nil
}

// measure appends the median time of one operation in nanoseconds.
func (p *peer) measure(op string, size, rounds int, to *[]float64) error {
	if _, err := fmt.Fprintf(p.in, "{\"op\":%q,\"size\":%d,\"rounds\":%d}\n", op, size, rounds); err != nil {
		return err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the peer ended: %w", err)
	}
	var a struct {
		Median  float64 `json:"median_ns"`
		Version string  `json:"version"`
		Error   string  `json:"error"`
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("the peer said %q: %w", line, err)
	}
	if a.Error != "" {
		return errors.New("the peer: " + a.Error)
	}
	p.version = a.Version
	*to = append(*to, a.Median)
	return nil
}

func (p *peer) close(err error) error { return errors.Join(err, p.in.Close(), p.cmd.Wait()) }
