//go:build linux

package daemon

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/daemon/wire"
)

const controlVariable = "RINGCACHE_TEST_CONTROL"

// puppet is a process that makes connections and hands them to the test, which speaks through them: for the
// server the puppet is who speaks.
type puppet struct {
	testing.TB
	cmd     *exec.Cmd
	control *net.UnixConn
}

// newPuppet starts a puppet. It is killed when the test ends.
func newPuppet(t testing.TB) *puppet {
	t.Helper()
	return newPuppetAs(t, nil)
}

func newPuppetAs(t testing.TB, as *syscall.SysProcAttr) *puppet {
	t.Helper()
	dir, err := os.MkdirTemp("", "rc")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "c")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	require.NoError(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o777)))
	defer l.Close()
	program := os.Args[0]
	if as != nil { // who may not see the folder of the test's program
		program = filepath.Join(dir, "puppet")
		b, err := os.ReadFile(os.Args[0])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(program, b, 0o755))
	}
	p := &puppet{TB: t, cmd: exec.Command(program)}
	p.cmd.Env = append(os.Environ(), childVariable+"=puppet", controlVariable+"="+path, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr, p.cmd.SysProcAttr = os.Stderr, as
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	conn, err := l.Accept()
	require.NoError(t, err)
	p.control = conn.(*net.UnixConn)
	t.Cleanup(func() { _ = conn.Close() })
	return p
}

func runPuppet() {
	conn, err := net.Dial("unix", os.Getenv(controlVariable))
	if err != nil {
		panic(err)
	}
	control := conn.(*net.UnixConn)
	for lines := bufio.NewScanner(control); lines.Scan(); {
		made, err := net.Dial("unix", lines.Text())
		if err != nil {
			panic(err)
		}
		f, err := made.(*net.UnixConn).File()
		if err != nil {
			panic(err)
		}
		if _, _, err := control.WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil); err != nil {
			panic(err)
		}
		_, _ = f.Close(), made.Close() // the test has it
	}
}

// kill ends the puppet by SIGKILL, as often as it is called.
func (p *puppet) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *puppet) pid() int { return p.cmd.Process.Pid }

// dial makes the puppet connect to a socket.
func (p *puppet) dial(socket string) *peer {
	p.Helper()
	_, err := p.control.Write([]byte(socket + "\n"))
	require.NoError(p, err)
	one, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := p.control.ReadMsgUnix(one, rights)
	require.NoError(p, err)
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	require.NoError(p, err)
	require.Len(p, messages, 1, strings.TrimSpace(socket))
	fds, err := unix.ParseUnixRights(&messages[0])
	require.NoError(p, err)
	f := os.NewFile(uintptr(fds[0]), socket)
	conn, err := net.FileConn(f)
	require.NoError(p, err)
	require.NoError(p, f.Close())
	p.Cleanup(func() { _ = conn.Close() })
	return &peer{TB: p.TB, conn: conn, reader: wire.NewReader(conn, wire.MaxReply)}
}

// hello makes the puppet connect and open a session.
func (p *puppet) hello(socket, session string) *peer {
	p.Helper()
	c := p.dial(socket)
	c.hello(session)
	return c
}
