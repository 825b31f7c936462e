package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// crowd makes as many connections as a process may, each with a session, until its stdin ends.
func crowd(socket string) {
	var conns []*client.Client
	var last error
	for range 60 {
		c, err := client.Dial(context.Background(), client.Options{Socket: socket, Name: "crowd"})
		if err != nil {
			last = err
			break
		}
		conns = append(conns, c)
	}
	idle := 0
	for range 60 { // and some that say nothing
		c, err := net.Dial("unix", socket)
		if err != nil {
			break
		}
		defer c.Close()
		idle++
	}
	kind := wire.Kind("untold") // what is refused beyond a number is just closed
	if refused := (*wire.Error)(nil); errors.As(last, &refused) {
		kind = refused.Kind
	}
	fmt.Printf("%d %d %s %v\n", len(conns), idle, kind, last)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	os.Exit(0)
}

// TestFewDescriptors: with few descriptors, and as many connections of several processes as there can be,
// what is stored is written to the disk, HTTP answers, clients go on, and those who are refused are told that
// the daemon is busy.
func TestFewDescriptors(t *testing.T) {
	const limit = 128
	if err := exec.Command("/bin/sh", "-c", fmt.Sprintf("ulimit -n %d", limit)).Run(); err != nil {
		t.Skipf("the limit of open files can't be set: %v", err)
	}
	s := newServing(t, "--disk", t.TempDir())
	args := append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, limit), "sh", os.Args[0], "serve"},
		s.flags...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Env = append(os.Environ(), "RINGCACHE_TEST_COMMAND=1", "NOTIFY_SOCKET=")
	s.launch(cmd)
	require.Contains(t, s.wait("connections are cut from 1024"), fmt.Sprintf("may open %d files", limit))
	s.wait("msg=serving")
	c := s.dial()

	said := make(chan string, 8)
	for range cap(said) {
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), "RINGCACHE_TEST_CROWD="+s.socket)
		in, err := p.StdinPipe()
		require.NoError(t, err)
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		t.Cleanup(func() { require.NoError(t, errors.Join(in.Close(), p.Wait())) })
		go func() {
			line, _ := bufio.NewReader(out).ReadString('\n')
			said <- strings.TrimSpace(line)
		}()
	}
	connected := 0
	for range cap(said) {
		select {
		case line := <-said:
			n, idle, kind := 0, 0, wire.Kind("")
			_, err := fmt.Sscan(line, &n, &idle, &kind)
			require.NoError(t, err, line)
			require.Contains(t, []wire.Kind{wire.KindBusy, "untold"}, kind, line)
			connected += n
		case <-time.After(patience):
			t.Fatal("a process of clients says nothing")
		}
	}
	require.Greater(t, connected, 8)

	for refused := (*wire.Error)(nil); refused == nil; { // the idle connections of others are refused first
		another, err := client.Dial(t.Context(), client.Options{Socket: s.socket, Name: "another"})
		if err == nil {
			require.NoError(t, another.Close())
			break
		}
		if errors.As(err, &refused) {
			require.Equal(t, wire.KindBusy, refused.Kind)
		}
	}

	names := make([]string, 40)
	for i := range names {
		names[i] = fmt.Sprint("object-", i)
		put(t, c, "lease", names[i], bytes.Repeat([]byte{byte(i)}, 10_000))
		require.NoError(t, c.Release(t.Context(), wire.Request{Leases: []string{"lease"}}))
	}
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		p, err := c.Stat(t.Context(), wire.Request{})
		require.NoError(t, err)
		if p.State.Backlog == 0 {
			require.Equal(t, int64(len(names)), p.State.Levels[1].Objects)
			break
		}
		require.Less(t, time.Since(start), patience, s.text())
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		code, body := s.get(path)
		require.Equal(t, 200, code, body)
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	require.NoError(t, err)
	require.Less(t, len(fds), limit*3/4, "some are left")
	require.NotContains(t, s.text(), "too many open files")
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
}
