// Package process runs the peers of the benchmarks: programs that answer lines of JSON with lines of JSON.
package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Process is a child that reads and writes lines of JSON.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts the command. What it writes to its standard error goes to ours.
func Start(cmd *exec.Cmd) (*Process, error) {
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
	return &Process{cmd, in, bufio.NewReader(out)}, nil
}

// Send writes a line.
func (p *Process) Send(v any) error { return json.NewEncoder(p.in).Encode(v) }

// Receive reads a line into v.
func (p *Process) Receive(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s ended: %w", p.cmd.Path, err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%s answered %q: %w", p.cmd.Path, line, err)
	}
	return nil
}

// Close ends the input of the process, and waits for its end.
func (p *Process) Close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
