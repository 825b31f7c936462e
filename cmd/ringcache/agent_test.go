package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/shmfile"
)

// TestMain lets the test binary stand in for the command.
func TestMain(m *testing.M) {
	if os.Getenv("RINGCACHE_TEST_AGENT") != "" {
		if err := (agentCommand{}).Run(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv("RINGCACHE_TEST_COMMAND") != "" {
		main()
		if file := os.Getenv("RINGCACHE_TEST_PEAK"); file != "" {
			if err := writePeak(file); err != nil {
				panic(err)
			}
		}
		os.Exit(0)
	}
	if socket := os.Getenv("RINGCACHE_TEST_CROWD"); socket != "" {
		crowd(socket)
	}
	if dir := os.Getenv("RINGCACHE_TEST_POOL"); dir != "" {
		servePool(dir)
	}
	os.Exit(m.Run())
}

// TestAgentRemovesItsSegments: at the end of input, at a signal, and when no
// one reads its answers any more.
func TestAgentRemovesItsSegments(t *testing.T) {
	for name, end := range map[string]func(*exec.Cmd, *os.File, *os.File){
		"end of input": func(_ *exec.Cmd, in, _ *os.File) { _ = in.Close() },
		"SIGTERM":      func(c *exec.Cmd, _, _ *os.File) { _ = c.Process.Signal(syscall.SIGTERM) },
		"SIGINT":       func(c *exec.Cmd, _, _ *os.File) { _ = c.Process.Signal(syscall.SIGINT) },
		"SIGHUP":       func(c *exec.Cmd, _, _ *os.File) { _ = c.Process.Signal(syscall.SIGHUP) },
		"output closed": func(_ *exec.Cmd, in, out *os.File) {
			_ = out.Close()
			_, _ = in.WriteString("{}\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "RINGCACHE_TEST_AGENT=1")
			cmd.Stderr = os.Stderr
			inR, in, err := os.Pipe()
			require.NoError(t, err)
			out, outW, err := os.Pipe()
			require.NoError(t, err)
			cmd.Stdin, cmd.Stdout = inR, outW
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			require.NoError(t, inR.Close())
			require.NoError(t, outW.Close())
			_, err = in.WriteString(`{"op":"store.create","store":"s","size":1000,"max_object":100,"readers":1}` + "\n")
			require.NoError(t, err)
			line, err := bufio.NewReader(out).ReadBytes('\n')
			require.NoError(t, err)
			var reply struct{ Name string }
			require.NoError(t, json.Unmarshal(line, &reply))
			path := filepath.Join(shmfile.DefaultDir, reply.Name)
			require.FileExists(t, path)
			end(cmd, in, out)
			_ = cmd.Wait()
			require.NoFileExists(t, path)
			_ = in.Close()
			_ = out.Close()
		})
	}
}
