//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// screen is a pseudo-terminal with a command on it.
type screen struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	done   chan struct{} // closed when all was read

	mu  sync.Mutex
	raw bytes.Buffer
}

// onTerminal starts `ringcache ARGS` on a terminal of its own.
func onTerminal(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	s := &screen{t: t, master: master, cmd: command(args...), done: make(chan struct{})}
	s.resize(30, 120)
	s.cmd.Env = append(append(s.cmd.Env, "TERM=xterm-256color", "NO_COLOR="), env...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, s.cmd.Start())
	require.NoError(t, slave.Close())
	go s.read()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, unless the test failed
		_ = s.cmd.Wait()
		<-s.done
		require.NoError(t, master.Close())
	})
	return s
}

// read reads until the last process with the terminal has ended.
func (s *screen) read() {
	defer close(s.done)
	b := make([]byte, 4096)
	for {
		n, err := s.master.Read(b)
		s.mu.Lock()
		s.raw.Write(b[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *screen) resize(rows, columns uint16) {
	s.t.Helper()
	require.NoError(s.t, unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Row: rows, Col: columns}))
}

func (s *screen) press(keys string) {
	s.t.Helper()
	_, err := s.master.WriteString(keys)
	require.NoError(s.t, err)
}

// text returns what was shown so far.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

// forget makes wait look only at what is shown from now on.
func (s *screen) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw.Reset()
}

// wait waits until all texts were shown. A screen is drawn in parts, so each text must be one that is drawn
// at once.
func (s *screen) wait(texts ...string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		plain := ansi.Strip(s.text())
		for _, x := range texts {
			if !strings.Contains(plain, x) {
				return false
			}
		}
		return true
	}, patience, 10*time.Millisecond, "%q", texts)
}

// end waits for the end of the process, and returns its exit status.
func (s *screen) end() int {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		require.Fail(s.t, "the command does not end", s.text())
	}
	return s.cmd.ProcessState.ExitCode()
}
