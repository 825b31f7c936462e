//go:build unix

package fault

import (
	"fmt"
	"syscall"
	"time"
)

// WaitKilled waits for the end of a process, and returns an error if that was not by SIGKILL.
func (p *Process) WaitKilled() error {
	err := p.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("fault: the process was not killed, but ended: %s (%w)", p.cmd.ProcessState, err)
	}
	return nil
}

// Stop stops the process by SIGSTOP, and returns when all of its threads have stopped. The process keeps
// its locks and its memory until [Process.Continue].
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := stopped(p.PID())
		if stopped || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// Continue lets a process go on that was stopped.
func (p *Process) Continue() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
