package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ringcache/ringcache/agent"
)

type agentCommand struct{}

// Run answers requests until the end of input, or a signal to stop. Either way
// the segments that the agent made are removed.
func (agentCommand) Run() error {
	// When the reader of stdout has closed it, a write fails, and SIGPIPE must not end the process before the
	// segments are removed.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	a := agent.New()
	done := make(chan error, 1)
	go func() { done <- a.Run(os.Stdin, os.Stdout) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return a.Close() // reading stdin can't be interrupted; the process ends anyway
	}
}
