package main

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

const (
	signalStop     = syscall.SIGSTOP
	signalContinue = syscall.SIGCONT
	signalStacks   = syscall.SIGQUIT
)

var starts = make(chan func())

// startCommand starts a command that dies with this process. The kernel kills the command when the thread that
// started it ends, so one thread starts all of them and never ends.
func startCommand(cmd *exec.Cmd) error {
	startThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // no interrupt of the terminal
	result := make(chan error)
	starts <- func() { result <- cmd.Start() }
	return <-result
}

// startDetached starts a command that outlives this process.
func startDetached(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

var startThread = sync.OnceFunc(func() {
	go func() {
		runtime.LockOSThread()
		for f := range starts {
			f()
		}
	}()
})

func signalProcess(p *os.Process, s syscall.Signal) { _ = p.Signal(s) } // it may have ended
