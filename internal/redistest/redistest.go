// Package redistest runs Redis servers of the distribution for tests: single ones, clusters, Sentinels.
//
// The packages are fetched once, by scripts/fetch-package.sh, without root. Where that fails, tests skip with
// the reason. Servers listen on loopback and on a socket in the test's folder, and end with the test, also
// when it fails; on Linux with the test process, however that ends.
package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is one redis-server process.
type Server struct {
	t       testing.TB
	folder  string // its own
	port    int
	bus     int // of a cluster's members
	args    []string
	cli     []string // arguments of redis-cli
	on      func(*exec.Cmd)
	process *os.Process
	ended   chan struct{} // closed when the process has ended
}

// Start runs a server with further arguments. It keeps nothing on disk unless they say so.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := New(t, args...)
	s.Start()
	return s
}

// New returns a server that does not run yet.
func New(t testing.TB, args ...string) *Server {
	t.Helper()
	folder(t)
	dir, err := os.MkdirTemp("", "redis") // short, as paths of sockets have to be
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, folder: dir, port: freePort(t), bus: freePort(t), args: args}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("log of the server at port %d:\n%s", s.port, log[max(0, len(log)-4000):])
		}
		_ = os.RemoveAll(dir)
	})
	return s
}

// CLI sets arguments for Do, such as a password.
func (s *Server) CLI(args ...string) { s.cli = args }

// On has the server and redis-cli run where a function puts commands: on a host of package hosttest.
func (s *Server) On(on func(*exec.Cmd)) { s.on = on }

// Port returns the port, on loopback unless the arguments say otherwise.
func (s *Server) Port() int { return s.port }

// Addr returns host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Socket returns the path of the socket.
func (s *Server) Socket() string { return filepath.Join(s.folder, "socket") }

// Folder is where the server has its data.
func (s *Server) Folder() string { return s.folder }

// Start runs the server and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	args := append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--unixsocket", s.Socket(),
		"--dir", s.folder,
		"--logfile", filepath.Join(s.folder, "log"), "--save", "", "--appendonly", "no"}, s.args...)
	s.run("redis-server", args...)
}

func (s *Server) run(program string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(folder(s.t), "usr/bin", program), args...)
	cmd.Env = environment(s.t)
	cmd.Dir = s.folder
	if s.on != nil {
		s.on(cmd)
	}
	endWithParent(cmd)
	s.ended = make(chan struct{})
	started := make(chan error)
	go func() {
		// The kernel ends the process together with the thread that started it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ends does not matter
			close(s.ended)
		}
	}()
	if err := <-started; err != nil {
		s.t.Fatal(err)
	}
	s.process = cmd.Process
	deadline := time.Now().Add(2 * time.Minute)
	for {
		// An error in the place of PONG is an answer, too: of a server with a password, say.
		if out, _ := s.do("ping"); out != "" && !strings.Contains(out, "Could not connect") &&
			!strings.Contains(out, "LOADING") {
			return
		}
		select {
		case <-s.ended:
			s.t.Fatalf("%s at port %d has ended, see its log", program, s.port)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s at port %d does not answer", program, s.port)
		}
	}
}

// Signal sends a signal to the server.
func (s *Server) Signal(signal os.Signal) {
	s.t.Helper()
	if err := s.process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server at once, and waits for its end. It does nothing if the server does not run.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill()
	<-s.ended
	s.process = nil
}

// Restart kills the server and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// Do runs a command by redis-cli and returns its answer. An error of the server is part of the answer.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	out, err := s.do(args...)
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *Server) do(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(folder(s.t), "usr/bin/redis-cli"),
		append(append([]string{"-p", strconv.Itoa(s.port)}, s.cli...), args...)...)
	cmd.Env = environment(s.t)
	if s.on != nil {
		s.on(cmd)
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Wait calls Do until the answer contains a text.
func (s *Server) Wait(text string, args ...string) {
	s.t.Helper()
	var out string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if out, _ = s.do(args...); strings.Contains(out, text) {
			return
		}
	}
	s.t.Fatalf("redis-cli %s does not answer %q but %q", strings.Join(args, " "), text, out)
}

var packages = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	var errs bytes.Buffer
	cmd := exec.Command(filepath.Join(filepath.Dir(file), "../../scripts/fetch-package.sh"), "redis-server",
		"redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
})

func folder(t testing.TB) string {
	t.Helper()
	dir, err := packages()
	if err != nil {
		t.Skipf("no redis-server: %v", err)
	}
	return dir
}

func environment(t testing.TB) []string {
	libraries, err := filepath.Glob(filepath.Join(folder(t), "usr/lib/*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
