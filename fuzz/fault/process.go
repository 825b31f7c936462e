package fault

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"
)

// Process is a child process with pipes. It is killed when the test ends. A Process must not be
// used by two goroutines at a time, but Kill, Stop and Continue may be called by any.
type Process struct {
	In  io.WriteCloser // its standard input
	Out *bufio.Scanner // the lines of its standard output

	cmd    *exec.Cmd
	stderr bytes.Buffer
	once   sync.Once
	err    error
}

// Start starts a command whose Stdin, Stdout and Stderr are not set.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{cmd: cmd}
	cmd.Stderr = &p.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.In, p.Out = in, bufio.NewScanner(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_ = p.Wait()
	})
	return p
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Line returns the next line that the process prints.
func (p *Process) Line() (string, error) {
	if !p.Out.Scan() {
		return "", errors.Join(errors.New("fault: the process prints nothing more"), p.Out.Err(), p.Wait())
	}
	return p.Out.Text(), nil
}

// Kill ends the process by SIGKILL, at whatever instant it is. After Wait it does nothing.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Wait waits for the end of the process, and returns an error with what it wrote to stderr if it
// failed.
func (p *Process) Wait() error {
	p.once.Do(func() {
		if p.err = p.cmd.Wait(); p.err != nil {
			p.err = fmt.Errorf("fault: %w: %s", p.err, &p.stderr)
		}
	})
	return p.err
}
