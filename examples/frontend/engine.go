package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/engine"
)

// command is the one that was given, with the address filled in.
func (s *server) command(a engine.Address) *exec.Cmd {
	fill := strings.NewReplacer("{handshake}", a.Handshake, "{host}", a.Host, "{port}", a.Port, "{segment}", a.Segment)
	args := make([]string, len(s.o.Engine))
	for i, x := range s.o.Engine {
		args[i] = fill.Replace(x)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if s.o.Log {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	// An engine that reads its input can tell when we are gone.
	_, _ = cmd.StdinPipe()
	return cmd
}

func (s *server) advice() string {
	a := s.engine.Address()
	return fmt.Sprintf("start the engine with %s\n", strings.Join(append(a.Env, "vllm serve", s.vision.name,
		"--headless --data-parallel-address", a.Host, "--data-parallel-rpc-port", a.Port,
		"--mm-processor-cache-type", s.o.Cache, "--mm-processor-cache-gb", strconv.FormatFloat(s.o.Capacity, 'g', -1, 64)), " "))
}

// keep starts the engine, and starts it again whenever it has gone.
func (s *server) keep(ctx context.Context) error {
	for {
		if err := s.engine.Start(ctx); err != nil {
			return err // what can't start once will not start the next time
		}
		gone, why := s.engine.Gone()
		select {
		case <-gone:
			s.log.Error("the engine has gone, starting it again", "error", why())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
