//go:build linux

package daemontest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon"
	"github.com/ringcache/ringcache/daemon/internal/registry"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// daemonRole is a process with a server over a segment and, if wanted, a folder. It prints a line for each
// thing that it has done, and answers each line that it reads; at the end of its input it ends in peace.
type daemonRole struct {
	Dir      string // of the segment, the socket and the folder
	Size     int64
	Disk     bool
	Grace    time.Duration
	Protocol string        // "" is ours
	Limits   daemon.Limits // of ours
}

// The protocols of a daemonRole beside ours.
const (
	protocolKV   = "kv" // LMCache's multiprocess protocol
	protocolLM   = "lm"
	protocolRESP = "resp"
)

func (r *daemonRole) socket() string { return filepath.Join(r.Dir, "socket") }

// served is what a daemon serves.
type served interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	describe(f *facts)
}

// server is that of another protocol than ours.
type server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context)
}

// registered serves another protocol than ours. Its sessions are in a registry.
type registered struct {
	server
	all *registry.Registry
	own int // sessions that are no client's
}

func (s registered) Shutdown(ctx context.Context) error {
	s.server.Shutdown(ctx)
	return nil
}

func (s registered) describe(f *facts) { f.Sessions = s.all.Counts().Sessions - s.own }

// ours serves our protocol.
type ours struct{ *daemon.Server }

func (s ours) describe(f *facts) {
	c := s.Counters()
	f.Sessions, f.Refused = c.Sessions, c.Refused
}

// facts are what a daemon says of itself.
type facts struct {
	Goroutines, Descriptors, Sessions, Pinned, Reserved int
	Heap                                                uint64
	Refused                                             []daemon.RefusedCounter
}

func say(format string, args ...any) {
	_, _ = os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
}

func (r *daemonRole) run() {
	if err := r.serve(); err != nil {
		say("! %v", err)
		os.Exit(1)
	}
	say("ended")
}

func (r *daemonRole) serve() (err error) {
	level, err := memory.Open(memory.Options{Name: "load", Dir: r.Dir, Size: r.Size, MaxObjects: 8192, MaxLeases: 8192, MaxPins: 1 << 16})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, level.CheckStructure(), level.Close()) }()
	say("memory")
	if err := level.CheckStructure(); err != nil {
		return err
	}
	o := tier.Options{Memory: level, MaxBacklog: 1 << 30} // what is committed beyond would stay in memory alone
	if r.Disk {
		lower, err := disk.Open(filepath.Join(r.Dir, "disk"), disk.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lower.Close()) }()
		o.Lower = []tier.Lower{{Level: lower}}
	}
	say("levels")
	store, err := tier.Open(context.Background(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	say("store")
	var server served
	if r.Protocol != "" {
		all, err2 := r.registry(store, level)
		if err2 != nil {
			return err2
		}
		defer func() { err = errors.Join(err, all.Check()); all.Close() }()
		if r.Protocol == protocolKV {
			server, err = r.newLMCache(all, store, level)
		} else {
			server, err = r.newValues(all, store)
		}
	} else {
		var s *daemon.Server
		s, err = daemon.NewServer(daemon.ServerOptions{Store: store, Memory: level, ShmDir: r.Dir, Grace: r.Grace, Limits: r.Limits})
		server = ours{s}
	}
	if err != nil {
		return err
	}
	say("server")
	if err := os.Remove(r.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", r.socket())
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	say("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := facts{Goroutines: runtime.NumGoroutine()}
		server.describe(&f)
		for _, l := range store.Leases() {
			f.Pinned, f.Reserved = f.Pinned+len(l.Pinned), f.Reserved+len(l.Reserved)
		}
		f.Descriptors, _, _ = takes(os.Getpid())
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		f.Heap = m.HeapAlloc
		b, err := json.Marshal(f)
		if err != nil {
			return err
		}
		say("%s", b)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	return <-served
}

// process is a daemon that runs.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	ended chan struct{} // closed when it has ended, and lines is complete
	bad   string        // what it has complained about, after ended
}

func (r daemonRole) start(t *testing.T, killAt string) *process {
	t.Helper()
	p := &process{t: t, cmd: child(t, role{Daemon: &r}, failpoint.KillVariable+"="+killAt), lines: make(chan string, 100), ended: make(chan struct{})}
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, start(p.cmd))
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			if line, bad := strings.CutPrefix(s.Text(), "! "); bad {
				p.bad = line
				continue
			}
			p.lines <- s.Text()
		}
		if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState.ExitCode() >= 0 {
			p.bad = fmt.Sprintf("%v: %s", err, p.bad)
		}
		close(p.lines)
		close(p.ended)
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// wait waits until the daemon has printed a line. It reports false if it has ended.
func (p *process) wait(line string) bool {
	for {
		select {
		case got, ok := <-p.lines:
			if !ok || got == line {
				return ok
			}
		case <-time.After(patience):
			p.t.Fatalf("the daemon does not come to %q", line)
		}
	}
}

// facts asks the daemon.
func (p *process) facts() (f facts) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		p.t.Fatalf("the daemon has ended: %v, %s", err, p.bad)
	}
	select {
	case line := <-p.lines:
		require.NoError(p.t, json.Unmarshal([]byte(line), &f), line)
	case <-time.After(patience):
		p.t.Fatal("the daemon says nothing")
	}
	return f
}

// await waits until the daemon says of itself what is wanted, and returns that.
func (p *process) await(want string, is func(facts) bool) facts {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		f := p.facts()
		if is(f) {
			return f
		}
		require.True(p.t, time.Now().Before(end), "want %s: %+v", want, f)
	}
}

// kill ends the daemon at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.drain()
}

// end ends it in peace.
func (p *process) end() {
	p.t.Helper()
	require.NoError(p.t, p.in.Close())
	p.drain()
	require.Zero(p.t, p.cmd.ProcessState.ExitCode(), p.bad)
}

func (p *process) drain() {
	for {
		select {
		case _, ok := <-p.lines:
			if !ok {
				<-p.ended
				return
			}
		case <-time.After(patience):
			_ = p.cmd.Process.Signal(os.Interrupt)
			p.t.Fatal("the daemon does not end")
		}
	}
}

// takes returns the descriptors of a process, and its own memory and the shared memory that it has touched, in bytes.
func takes(pid int) (descriptors int, private, shared int64) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0, 0, 0
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "RssAnon:":
			private = n << 10
		case "RssFile:", "RssShmem:":
			shared += n << 10
		}
	}
	return len(list), private, shared
}
