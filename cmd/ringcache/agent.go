package main

import (
	"os"

	"github.com/ringcache/ringcache/internal/agent"
)

type agentCommand struct{}

// Run answers requests until the end of input.
func (agentCommand) Run() error { return agent.New().Run(os.Stdin, os.Stdout) }
