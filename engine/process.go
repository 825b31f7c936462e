package engine

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// settle is how long the children of an engine that has ended may take to end by
// themselves: some remove what the others left.
const settle = 2 * time.Second

// process is an engine that we started, with what it started.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
	done   chan struct{} // closed when it was waited for, and its group is gone
	err    error         // of Wait, once done

	mu     sync.Mutex
	reaped bool // its number may be somebody else's
}

// startProcess starts the engine in a process group of its own.
func startProcess(cmd *exec.Cmd, env []string) (*process, error) {
	if !canAwait {
		return nil, fmt.Errorf("%w: engines can be started on Linux only; attach to one (no Options.Command)",
			errInvalid)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(slices.Clip(cmd.Env), env...)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	ownGroup(cmd.SysProcAttr)
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = 5 * time.Second // for what its children still write
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("engine: can't start the engine: %w", err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{}), done: make(chan struct{})}
	go p.wait() // ends with the process, which end sees to
	return p, nil
}

func (p *process) wait() {
	defer close(p.done)
	awaitExit(p.cmd.Process.Pid)
	close(p.exited)
	time.Sleep(settle)
	p.kill()
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	p.err = p.cmd.Wait()
}

// kill ends the whole group, unless its number may be another's.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		killGroup(p.cmd.Process.Pid)
	}
}

// end asks the process to end, and kills it if it has not done so in time.
func (p *process) end(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
		p.kill()
	}
	<-p.done
}
