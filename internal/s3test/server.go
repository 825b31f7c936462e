package s3test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
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

// Access and Secret are the credentials of every store of this package.
const (
	Access = "test-access"
	Secret = "test-secret-0123456789"
)

// Server is a versitygw process over a folder.
type Server struct {
	t       testing.TB
	folder  string
	port    int
	process *os.Process
	ended   chan struct{} // closed when the process has ended
}

// Start runs a server with an empty bucket until the end of the test, on Linux at most as long as the test's
// process.
func Start(t testing.TB) *Server {
	t.Helper()
	program(t)
	s := &Server{t: t, folder: t.TempDir(), port: freePort(t)}
	for _, dir := range []string{Bucket, "meta"} {
		if err := os.MkdirAll(filepath.Join(s.folder, "data", dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.folder, "sidecar"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.folder, "log"))
			t.Logf("log of the store at port %d:\n%s", s.port, log[max(0, len(log)-4000):])
		}
	})
	s.Start()
	return s
}

// Endpoint returns http://HOST:PORT.
func (s *Server) Endpoint() string { return "http://" + s.addr() }

func (s *Server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is that of a level, with a prefix.
func (s *Server) URL(prefix string) string {
	return "s3://" + Bucket + "/" + prefix + "?endpoint=" + s.Endpoint()
}

// File returns the path of an object's bytes.
func (s *Server) File(key string) string { return filepath.Join(s.folder, "data", Bucket, key) }

// Start runs the server again and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program(s.t), "--port", s.addr(), "--access", Access, "--secret", Secret, "--quiet",
		"posix", "--sidecar", filepath.Join(s.folder, "sidecar"), filepath.Join(s.folder, "data"))
	cmd.Stdout, cmd.Stderr = log, log
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
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if answer, err := http.Get(s.Endpoint() + "/" + Bucket + "/none"); err == nil {
			answer.Body.Close()
			http.DefaultClient.CloseIdleConnections()
			return
		}
		select {
		case <-s.ended:
			s.t.Fatalf("the store at port %d has ended, see its log", s.port)
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the store at port %d does not answer", s.port)
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

var built = sync.OnceValues(func() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	var errs bytes.Buffer
	cmd := exec.Command(filepath.Join(filepath.Dir(file), "../../scripts/fetch-s3-server.sh"), "--built")
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
})

// program returns the server's program, or skips the test.
func program(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Skipf("no S3 server: %v", err)
	}
	return path
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
