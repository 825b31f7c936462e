package promtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// patience is the longest wait for what a process does.
const patience = 3 * time.Minute

// program is `ringcache`, built for these tests.
var program string

func TestMain(m *testing.M) {
	if program = os.Getenv("PROMTEST_PROGRAM"); program != "" { // a child of a test
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "promtest")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "ringcache")
	build := exec.Command("go", "build", "-o", program, "./cmd/ringcache")
	build.Dir = filepath.Join("..", "..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	if err := os.Setenv("PROMTEST_PROGRAM", program); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// process is a daemon that a test can end as it likes.
type process struct {
	t      *testing.T
	dir    string
	socket string
	flags  []string
	http   string
	cmd    *exec.Cmd
	ended  chan struct{}
	log    *bytes.Buffer // of the run; read it when it has ended
}

// newDaemon starts a daemon with a segment of four MiB and further flags.
func newDaemon(t *testing.T, flags ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "rc") // short, as paths of sockets have to be
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	d := &process{t: t, dir: dir, socket: filepath.Join(dir, "s")}
	d.flags = append([]string{"--socket", d.socket, "--shm-dir", dir, "--size", "4MiB", "--http", "127.0.0.1:0",
		"--log-format", "json", "--drain", "1s"}, flags...)
	d.start()
	t.Cleanup(d.kill)
	return d
}

// start starts it, and waits until it serves.
func (d *process) start() {
	d.t.Helper()
	d.cmd = exec.Command(program, append([]string{"serve"}, d.flags...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d.ended, d.log = make(chan struct{}), &bytes.Buffer{}
	out, err := d.cmd.StderrPipe()
	require.NoError(d.t, err)
	require.NoError(d.t, d.cmd.Start())
	serves := make(chan string, 1)
	go func() {
		address := ""
		for lines := bufio.NewScanner(io.TeeReader(out, d.log)); lines.Scan(); {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue
			}
			switch line.Msg {
			case "HTTP":
				address = line.Address
			case "serving":
				serves <- address
			}
		}
		_ = d.cmd.Wait()
		close(d.ended)
	}()
	select {
	case d.http = <-serves:
	case <-d.ended:
		d.t.Fatalf("the daemon has ended:\n%s", d.log)
	case <-time.After(patience):
		d.t.Fatal("the daemon does not serve")
	}
}

func (d *process) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

func (d *process) address() string { return d.http }

// value returns a sample of the daemon now, by its name and labels as the daemon prints them. What is not there is 0.
func (d *process) value(series string) float64 {
	d.t.Helper()
	resp, err := http.Get("http://" + d.http + "/metrics")
	require.NoError(d.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err)
	require.NoError(d.t, resp.Body.Close())
	for line := range strings.Lines(string(body)) {
		if text, is := strings.CutPrefix(line, series+" "); is {
			v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			require.NoError(d.t, err)
			return v
		}
	}
	return 0
}

// until waits until something is so.
func (d *process) until(what string, is func() bool) {
	d.t.Helper()
	for begin := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > patience {
			d.kill()
			d.t.Fatalf("%s: it did not come to that; the daemon's log:\n%s", what, d.log)
		}
	}
}

// user is a client of the daemon's own protocol.
type user struct {
	*client.Client
	t *testing.T
	n int
}

func (d *process) dial(name string) *user {
	d.t.Helper()
	c, err := client.Dial(d.t.Context(), client.Options{Socket: d.socket, Name: name})
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = c.Close() })
	return &user{Client: c, t: d.t}
}

const space = "tests"

// store stores objects of a size, and returns their names and what was answered to each.
func (u *user) store(count int, size int64) (names []string, items []wire.Item) {
	u.t.Helper()
	u.n++
	lease, objects := fmt.Sprint("store-", u.n), make([]wire.Object, count)
	for i := range objects {
		objects[i] = wire.Object{Name: fmt.Sprintf("object-%d-%d", u.n, i), Size: size}
	}
	items, err := u.Reserve(u.t.Context(), wire.Request{Lease: lease, Space: space, Objects: objects})
	require.NoError(u.t, err)
	for i, it := range items {
		if it.Status == wire.StatusReserved {
			names = append(names, objects[i].Name)
		}
	}
	if len(names) > 0 {
		_, err = u.Commit(u.t.Context(), wire.Request{Lease: lease, Space: space, Names: names})
		require.NoError(u.t, err)
	}
	require.NoError(u.t, u.Release(u.t.Context(), wire.Request{Leases: []string{lease}}))
	return names, items
}

// pin asks for objects until each has an answer, and keeps what is there for the lease.
func (u *user) pin(lease string, names []string) []wire.Item {
	u.t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		items, err := u.Pin(u.t.Context(), wire.Request{Lease: lease, Space: space, Names: names})
		require.NoError(u.t, err)
		if !slices.ContainsFunc(items, func(it wire.Item) bool { return it.Status == wire.StatusPending }) {
			return items
		}
		if time.Since(begin) > patience {
			u.t.Fatal("objects are on their way for ever")
		}
	}
}

// look asks for objects, and lets them go.
func (u *user) look(names []string) []wire.Item {
	u.t.Helper()
	items := u.pin("look", names)
	require.NoError(u.t, u.Release(u.t.Context(), wire.Request{Leases: []string{"look"}}))
	return items
}
