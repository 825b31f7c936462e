//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/kvload"
)

// kind is a kind of server.
type kind struct {
	name    string
	release string // of LMCache; empty is none of theirs
	mode    string // of gRPC, of 0.5.7
	bare    bool   // see the function bare
}

var kinds = []kind{
	{name: "ringcache"}, {name: "bare gRPC", bare: true}, {name: "lmcache 0.5.6", release: "0.5.6"},
	{name: "0.5.7rc2 sync", release: "0.5.7rc2", mode: "sync"}, {name: "0.5.7rc2 aio", release: "0.5.7rc2", mode: "aio"},
	{name: "0.5.7rc2 native", release: "0.5.7rc2", mode: "native"},
}

// bed has what servers need.
type bed struct {
	o       options
	dir     string
	kinds   []kind
	ours    string            // the binary
	python  string            // for stock servers
	folders map[string]string // of releases
	load    string            // of the machine, when it began
}

func newBed(ctx context.Context, o options) (*bed, error) {
	dir, err := os.MkdirTemp("", "kvb")
	if err != nil {
		return nil, err
	}
	b := &bed{o: o, dir: dir, ours: filepath.Join(dir, "ringcache"), folders: map[string]string{}, load: loadAverage()}
	for _, k := range kinds {
		if o.only == nil || o.only[k.name] {
			b.kinds = append(b.kinds, k)
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", b.ours, "./cmd/ringcache")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	env, err := exec.CommandContext(ctx, "interop/setup.sh").Output()
	if err != nil {
		return nil, err
	}
	b.python = filepath.Join(strings.TrimSpace(string(env)), "bin", "python")
	list, err := exec.CommandContext(ctx, "interop/e2e/lmcache.sh").Output()
	for line := range strings.Lines(string(list)) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "=")
		b.folders[strings.TrimPrefix(name, "lmcache_")] = folder
	}
	return b, err
}

func (b *bed) remove() { _ = os.RemoveAll(b.dir) }

// server is a server that runs.
type server struct {
	kind
	bed    *bed
	make   func() *exec.Cmd
	cmd    *exec.Cmd
	target string
	old    bool
	shm    string // prefix of what it has in /dev/shm
	log    *bytes.Buffer
}

// start starts a server with chunks of so many tokens, and room for so many MiB and objects, and waits until it
// listens.
func (b *bed) start(ctx context.Context, k kind, chunk, mib, objects int) (*server, error) {
	s := &server{kind: k, bed: b, old: k.release == "0.5.6"}
	s.shm = fmt.Sprintf("kvbench-%d-%s", os.Getpid(), strings.NewReplacer(" ", "", ".", "").Replace(k.name))
	switch {
	case k.bare:
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		socket := filepath.Join(b.dir, "bare")
		_ = os.Remove(socket) // of one before
		s.target = "unix:" + socket
		s.make = func() *exec.Cmd {
			return exec.Command(self, "bare", socket, s.shm, itoa(chunk))
		}
	case k.release == "":
		socket := filepath.Join(b.dir, "kv")
		s.target = "unix:" + socket
		s.make = func() *exec.Cmd {
			return exec.Command(b.ours, "serve", "--socket", filepath.Join(b.dir, "socket"), "--name", s.shm, "--size", itoa(int64(mib)<<20),
				"--max-objects", itoa(objects), "--max-leases", "16384", "--max-session-leases", "4096", "--lmcache", "grpc+unix://"+socket, "--lmcache-chunk-size", itoa(chunk), "--http", "off", "--log-level", "error")
		}
	default:
		ports := make([]string, 2)
		for i := range ports {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			_, ports[i], _ = net.SplitHostPort(l.Addr().String())
			_ = l.Close()
		}
		s.target = "passthrough:///127.0.0.1:" + ports[0]
		s.make = func() *exec.Cmd {
			cmd := exec.Command(b.python, "-m", "lmcache.cli.main", "server", "--transport", "grpc", "--host", "127.0.0.1", "--port", ports[0],
				"--http-port", ports[1], "--shm-name", s.shm, "--supported-transfer-mode", "engine_driven", "--l1-size-gb", fmt.Sprint(float64(mib)/1024),
				"--no-l1-use-lazy", "--eviction-policy", "LRU", "--chunk-size", itoa(chunk))
			if k.mode != "" {
				cmd.Args = append(cmd.Args, "--grpc-server-mode", k.mode)
			}
			cmd.Env = append(os.Environ(), "PYTHONPATH="+b.folders[k.release]+":"+b.o.native,
				"LMCACHE_TRACK_USAGE=false", "LMCACHE_DISABLE_BANNER=1", "LMCACHE_LOG_LEVEL=ERROR")
			return cmd
		}
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	return s, s.listens(ctx)
}

// begin starts the process.
func (s *server) begin() error {
	s.cmd, s.log = s.make(), &bytes.Buffer{}
	s.cmd.Stderr, s.cmd.Stdout = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s.cmd.Start()
}

func (s *server) listens(ctx context.Context) error {
	network, address := "tcp", strings.TrimPrefix(s.target, "passthrough:///")
	if s.release == "" {
		network, address = "unix", strings.TrimPrefix(s.target, "unix:")
	}
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial(network, address)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) || ctx.Err() != nil || zombie(s.cmd.Process.Pid) {
			return fmt.Errorf("%s does not listen: %w\n%s", s.name, err, s.log)
		}
	}
}

// zombie reports whether a child has ended.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " Z")
}

// kill ends the process at once, and leaves its shared memory.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// remove ends the server, and removes what it has in /dev/shm.
func (s *server) remove() {
	s.kill()
	left, _ := filepath.Glob("/dev/shm/" + s.shm + "*")
	for _, f := range left {
		_ = os.Remove(f)
	}
}

// connect makes an engine whose chunks have layers x tokens x hidden x 4 bytes.
func (s *server) connect(ctx context.Context, layers, hidden int,
	observe func(string, time.Duration)) (*kvload.Engine, error) {
	return kvload.Connect(ctx, kvload.Options{
		Target: s.target, Dir: "/dev/shm", Old: s.old, Model: "org/model", Block: 16, Layers: []int{layers},
		Hidden: hidden, World: 1, Timeout: time.Minute, Observe: observe,
	})
}

// taken returns the CPU time of a process, and the memory that it has for itself.
func (s *server) taken() (cpu time.Duration, private int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var user, system int64
	if len(f) > 12 {
		_, err = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	text, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(text)) {
		if n := int64(0); strings.HasPrefix(line, "RssAnon:") {
			_, err2 = fmt.Sscanf(line, "RssAnon: %d kB", &n)
			private = n << 10
		}
	}
	// a tick of the kernel is 10 ms
	return time.Duration(user+system) * 10 * time.Millisecond, private, errors.Join(err, err2)
}
