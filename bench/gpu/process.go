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

// process is a child that reads and writes lines of JSON.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(cmd *exec.Cmd) (*process, error) {
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
	return &process{cmd, in, bufio.NewReader(out)}, nil
}

func (p *process) send(v any) error { return json.NewEncoder(p.in).Encode(v) }

func (p *process) receive(v any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s ended: %w", p.cmd.Path, err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%s answered %q: %w", p.cmd.Path, line, err)
	}
	return nil
}

// close ends the input of the process, and waits for its end.
func (p *process) close() error { return errors.Join(p.in.Close(), p.cmd.Wait()) }
