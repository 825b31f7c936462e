package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/client"
	"github.com/ringcache/ringcache/daemon/wire"
)

// patience is the longest wait for a process.
const patience = 3 * time.Minute

// serving is a daemon in a process of its own.
type serving struct {
	t      *testing.T
	cmd    *exec.Cmd
	socket string
	shm    string
	flags  []string
	lines  chan string // of its log
	done   chan struct{}
	out    io.Closer // its log

	mu  sync.Mutex
	log []string
}

// newServing has a socket, a folder for shared memory, and flags for both. It does not run.
func newServing(t *testing.T, flags ...string) *serving {
	t.Helper()
	dir, err := os.MkdirTemp("", "rc")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := &serving{t: t, socket: filepath.Join(dir, "run", "s"), shm: t.TempDir()}
	s.flags = append([]string{"--socket", s.socket, "--shm-dir", s.shm, "--size", "1MiB", "--http", "127.0.0.1:0",
		"--grace", "10m"}, flags...)
	return s
}

// command is `ringcache ARGS`, by this test binary.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "RINGCACHE_TEST_COMMAND=1", "NOTIFY_SOCKET=")
	return cmd
}

// start runs the daemon and waits until it serves. Whatever happens, the process ends with the test.
func (s *serving) start(flags ...string) {
	s.t.Helper()
	s.launch(command(append(append([]string{"serve"}, s.flags...), flags...)...))
	s.wait("msg=serving")
}

func (s *serving) launch(cmd *exec.Cmd) {
	s.t.Helper()
	s.cmd, s.lines, s.done = cmd, make(chan string, 1000), make(chan struct{})
	out, err := cmd.StderrPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); <-s.done })
	s.out = out
	go func(lines chan string, done chan struct{}) {
		defer close(done)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			s.mu.Lock()
			s.log = append(s.log, scan.Text())
			s.mu.Unlock()
			lines <- scan.Text()
		}
		_ = cmd.Wait()
		close(lines)
	}(s.lines, s.done)
}

// wait waits for a line of the log that has all texts.
func (s *serving) wait(texts ...string) string {
	s.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the daemon has ended without %q:\n%s", texts, s.text())
			}
			has := true
			for _, text := range texts {
				has = has && strings.Contains(line, text)
			}
			if has {
				return line
			}
		case <-limit:
			s.t.Fatalf("no %q in:\n%s", texts, s.text())
		}
	}
}

// text returns the log so far.
func (s *serving) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

func (s *serving) signal(sig syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

// end waits for the end of the process and returns its exit status, -1 after a signal.
func (s *serving) end() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Fatalf("the daemon does not end:\n%s", s.text())
	}
	return s.cmd.ProcessState.ExitCode()
}

// http returns the address of the daemon's HTTP.
func (s *serving) http() string {
	s.t.Helper()
	all := regexp.MustCompile(`msg=HTTP address=(\S+)`).FindAllStringSubmatch(s.text(), -1)
	require.NotEmpty(s.t, all)
	return all[len(all)-1][1]
}

func (s *serving) get(path string) (int, string) {
	s.t.Helper()
	resp, err := http.Get("http://" + s.http() + path)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(b)
}

// dial connects as this process.
func (s *serving) dial() *client.Client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Socket: s.socket, Name: "test", Dir: s.shm})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, c.Close()) })
	return c
}

// ringcache runs `ringcache ARGS` to its end.
func ringcache(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// one is the only item of an answer.
func one(t *testing.T, items []wire.Item, err error) wire.Item {
	t.Helper()
	require.NoError(t, err)
	require.Len(t, items, 1)
	return items[0]
}

// put reserves an object, writes it and commits it.
func put(t *testing.T, c *client.Client, lease, name string, data []byte) wire.Item {
	t.Helper()
	v := reserve(t, c, lease, name, data)
	items, err := c.Commit(t.Context(), wire.Request{Lease: lease, Space: "space", Names: []string{name}, Keep: true})
	require.Equal(t, wire.StatusOK, one(t, items, err).Status)
	return v
}

// reserve reserves an object and writes it.
func reserve(t *testing.T, c *client.Client, lease, name string, data []byte) wire.Item {
	t.Helper()
	items, err := c.Reserve(t.Context(), wire.Request{Lease: lease, Space: "space",
		Objects: []wire.Object{{Name: name, Size: int64(len(data))}}})
	v := one(t, items, err)
	require.Equal(t, wire.StatusReserved, v.Status)
	m, err := c.Map(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Write(v, data))
	require.NoError(t, m.Close())
	return v
}

func pin(t *testing.T, c *client.Client, lease, name string) wire.Item {
	t.Helper()
	items, err := c.Pin(t.Context(), wire.Request{Lease: lease, Space: "space", Names: []string{name}, Seconds: 3600})
	return one(t, items, err)
}

// askOf is what `ringcache serve status --json` prints.
func askOf(t *testing.T, s *serving) status {
	t.Helper()
	out, errOut, code := ringcache(t, "serve", "status", "--json", "--socket", s.socket)
	require.Zero(t, code, errOut)
	var got status
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	return got
}

// TestServe: a daemon from its start to its end by a signal, and the next one.
func TestServe(t *testing.T) {
	s := newServing(t, "--disk", t.TempDir())
	s.start()
	code, body := s.get("/readyz")
	require.Equal(t, 200, code, body)
	code, body = s.get("/metrics")
	require.Equal(t, 200, code)
	require.Contains(t, body, "\nringcache_ready 1\n")

	c := s.dial()
	data := bytes.Repeat([]byte("x"), 1000)
	v := put(t, c, "lease", "name", data)
	got := askOf(t, s)
	require.Equal(t, s.socket, got.Socket)
	require.Equal(t, 1, got.Sessions, "without that of status itself")
	require.Len(t, got.Levels, 2)
	require.Equal(t, "memory", got.Levels[0].Name)
	require.Equal(t, int64(1), got.Levels[0].Objects)
	require.Len(t, got.Leases, 1)
	require.Equal(t, os.Getpid(), got.Leases[0].PID)
	require.Equal(t, "test", got.Leases[0].Client)
	require.Equal(t, 1, got.Leases[0].Pinned)
	out, _, _ := ringcache(t, "serve", "status", "--socket", s.socket)
	require.Regexp(t, `(?m)^memory +up +1 `, out)
	require.Regexp(t, fmt.Sprintf(`lease +test +%d +\S+ +1 +0 +1000 B +open`, os.Getpid()), out)

	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	require.Contains(t, s.text(), "msg=drained")
	left, err := os.ReadDir(filepath.Dir(s.socket))
	require.NoError(t, err)
	require.Empty(t, left, "the socket and its lock are gone")
	require.FileExists(t, filepath.Join(s.shm, "ringcache"), "the segment stays")
	_, err = net.Dial("tcp", s.http())
	require.Error(t, err)

	s.start()
	again := pin(t, c, "lease", "name")
	require.Equal(t, wire.StatusHit, again.Status)
	require.Equal(t, v.Offset, again.Offset)
	require.Len(t, askOf(t, s).Leases, 1)
	s.signal(syscall.SIGINT)
	require.Zero(t, s.end(), s.text())
}

// TestServeAfterKill: everything that was acknowledged is there, and the socket is replaced.
func TestServeAfterKill(t *testing.T) {
	s := newServing(t)
	s.start()
	c := s.dial()
	kept, written := bytes.Repeat([]byte("k"), 3000), bytes.Repeat([]byte("w"), 5000)
	v := put(t, c, "pinned", "kept", kept)
	reserve(t, c, "writing", "written", written)
	before := askOf(t, s)
	require.NoError(t, s.cmd.Process.Kill())
	require.Equal(t, -1, s.end())
	require.FileExists(t, s.socket)
	_, errOut, code := ringcache(t, "serve", "status", "--socket", s.socket)
	require.Equal(t, 1, code)
	require.Contains(t, errOut, ": it is dead")

	s.start()
	require.Contains(t, s.text(), "took a segment over")
	got := askOf(t, s)
	require.Equal(t, before.Segment, got.Segment)
	require.Len(t, got.Leases, 2)
	for _, l := range got.Leases {
		require.True(t, l.Waiting, "%v", l)
		require.Equal(t, os.Getpid(), l.PID)
	}
	again := pin(t, c, "pinned", "kept") // connects again
	require.Equal(t, wire.StatusHit, again.Status)
	require.Equal(t, v.Offset, again.Offset)
	items, err := c.Commit(t.Context(), wire.Request{Lease: "writing", Space: "space", Names: []string{"written"},
		Keep: true})
	require.Equal(t, wire.StatusOK, one(t, items, err).Status)
	m, err := c.Map(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	b, err := m.Read(nil, pin(t, c, "writing", "written"))
	require.NoError(t, err)
	require.Equal(t, written, b)
	b, err = m.Read(nil, again)
	require.NoError(t, err)
	require.Equal(t, kept, b)
	for _, l := range askOf(t, s).Leases {
		require.False(t, l.Waiting, "its client has come back")
	}
}

// TestServeReload: SIGHUP takes over what can be, refuses what can't, and serves on.
func TestServeReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ringcache.yaml")
	set := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	set("log-level: info\nmax-session-leases: 5\n")
	s := newServing(t, "--config", file)
	s.start()
	require.Equal(t, 5, s.dial().Hello().Limits.Leases)
	set("log-level: debug\nmax-session-leases: 3\n")
	s.signal(syscall.SIGHUP)
	s.wait("in force", "max-session-leases", "log-level")
	set("log-level: debug\nmax-session-leases: 3\nname: other\n")
	s.signal(syscall.SIGHUP)
	s.wait("refused", "name is", "needs a restart")
	set("log-lvel: info\n")
	s.signal(syscall.SIGHUP)
	s.wait("refused", "did you mean log-level?")
	require.NoError(t, os.Remove(file))
	s.signal(syscall.SIGHUP)
	s.wait("refused", "can't be read")
	require.Equal(t, 3, s.dial().Hello().Limits.Leases)
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	require.FileExists(t, filepath.Join(s.shm, "ringcache"), "clients have it mapped, although nothing is in it")
}

// TestServeWithoutAReaderOfItsLog: a log that nobody takes ends nothing.
func TestServeWithoutAReaderOfItsLog(t *testing.T) {
	s := newServing(t, "--log-level", "debug")
	s.start()
	c := s.dial()
	put(t, c, "lease", "name", []byte("data"))
	require.NoError(t, s.out.Close())
	address := s.http()
	for range 3 {
		s.signal(syscall.SIGHUP)
		require.Len(t, askOf(t, s).Leases, 1)
	}
	require.Equal(t, wire.StatusHit, pin(t, c, "lease", "name").Status)
	resp, err := http.Get("http://" + address + "/readyz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end())
}

// TestServeOnWhatIsThere: what is of another size, of a later release or of somebody else is refused, and
// stays.
func TestServeOnWhatIsThere(t *testing.T) {
	s := newServing(t)
	s.start()
	put(t, s.dial(), "lease", "name", []byte("data"))
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	refused := func(want string, flags ...string) {
		t.Helper()
		_, errOut, code := ringcache(t, append(append([]string{"serve"}, s.flags...), flags...)...)
		require.Equal(t, 1, code)
		require.Contains(t, errOut, want)
	}
	before := contents(t, s.shm)
	refused("has another size, 1MiB: keep it by size: 1MiB, or give another name, or remove the segment with all objects by `ringcache sweep", "--size", "2MiB")

	sidecar := filepath.Join(s.shm, "ringcache.ctl")
	b, err := os.ReadFile(sidecar)
	require.NoError(t, err)
	newer := bytes.Clone(b)
	newer[8] = 99 // the layout version
	require.NoError(t, os.WriteFile(sidecar, newer, 0o600))
	refused("is of a later release: start that release, or give another name")
	require.NoError(t, os.WriteFile(sidecar, b[:100], 0o600))
	refused("is not a usable sidecar")
	require.NoError(t, os.Remove(sidecar))
	refused("is no segment that a daemon of this user made: give another name")
	require.NoError(t, os.WriteFile(sidecar, b, 0o600))

	leases := filepath.Join(s.shm, "ringcache.leases")
	b, err = os.ReadFile(leases)
	require.NoError(t, err)
	newer = bytes.Clone(b)
	newer[8] = 99 // the layout version
	binary.LittleEndian.PutUint32(newer[40:], crc32.Checksum(newer[:40], crc32.MakeTable(crc32.Castagnoli)))
	require.NoError(t, os.WriteFile(leases, newer, 0o600))
	refused("is of a later release: start that release, or give another name")
	out, _, code := ringcache(t, append([]string{"serve", "check"}, s.flags...)...)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "is of a later release")
	require.NoError(t, os.WriteFile(leases, b, 0o600))
	require.True(t, maps.Equal(before, contents(t, s.shm)), "what is refused stays as it is")

	disk := filepath.Join(t.TempDir(), "disk")
	s.start("--disk", disk)
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	lock := filepath.Join(disk, ".ringcache", "lock")
	require.NoError(t, os.WriteFile(lock, []byte(`{"format":2,"layout":"native","space":null}`), 0o600))
	refused("is one that several hosts use: open it as such (folder:PATH, `--folder` of the daemon)", "--disk", disk)
	require.NoError(t, os.WriteFile(lock, []byte(`{"format":9,"layout":"native","space":null}`), 0o600))
	refused("the root has the format 9, this library reads the format 1", "--disk", disk)
	refused("is a root of the layout", "--disk", treeRoot(t)+"?layout=native")
	s.start()
	require.Equal(t, int64(1), askOf(t, s).Levels[0].Objects, "it was there all the time")
}

// treeRoot is a folder that was opened in another layout.
func treeRoot(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	s := newServing(t, "--disk", folder+"?layout=vllm-ec&space=space")
	s.start()
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	return folder
}

// contents are the files of a folder.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		all[f.Name()] = string(b)
	}
	return all
}

// TestServeLogsJSON, and maps the pages of its segment if it is told to.
func TestServeLogsJSON(t *testing.T) {
	s := newServing(t, "--log-format", "json", "--prefault")
	s.launch(command(append([]string{"serve"}, s.flags...)...))
	s.wait(`"msg":"serving"`)
	s.wait(`"msg":"the pages of the segment are mapped"`)
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	for _, line := range strings.Split(s.text(), "\n") {
		require.True(t, json.Valid([]byte(line)), line)
	}
}

// TestServeTwice: the second daemon says what is in its way, and the first one goes on.
func TestServeTwice(t *testing.T) {
	s := newServing(t)
	s.start()
	c := s.dial()
	put(t, c, "lease", "name", []byte("data"))
	for name, v := range map[string]struct {
		flags []string
		want  string
	}{
		"same":        {nil, fmt.Sprintf("another process, %d by its own account, serves the segment ringcache", s.cmd.Process.Pid)},
		"segment":     {[]string{"--socket", s.socket + "2"}, "serves the segment ringcache: end it, or give this daemon another name"},
		"socket":      {[]string{"--name", "other"}, fmt.Sprintf("another daemon, process %d by its own account, has the socket %s", s.cmd.Process.Pid, s.socket)},
		"http":        {[]string{"--name", "other", "--socket", s.socket + "2", "--http", s.http()}, "give another address by http, or off"},
		"their order": {[]string{"--http", s.http()}, "serves the segment ringcache"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errOut, code := ringcache(t, append(append([]string{"serve"}, s.flags...), v.flags...)...)
			require.Equal(t, 1, code, errOut)
			require.Contains(t, errOut, v.want)
		})
	}
	require.Equal(t, wire.StatusHit, pin(t, c, "lease", "name").Status)
	for _, dir := range []string{s.shm, filepath.Dir(s.socket)} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, f := range left {
			require.NotContains(t, f.Name(), "other")
			require.NotContains(t, f.Name(), "s2")
		}
	}
}

// TestServeRefusesWrongConfigurations before it opens anything.
func TestServeRefusesWrongConfigurations(t *testing.T) {
	s := newServing(t)
	_, errOut, code := ringcache(t, append(append([]string{"serve"}, s.flags...), "--size=4X", "--log-level=loud", "--disk-size=1GiB")...)
	require.Equal(t, 78, code)
	for _, want := range []string{"wrong in 3 places", `size (flag --size): "4X"`, `"loud"`, "disk-size (flag --disk-size): is set, and disk is not"} {
		require.Contains(t, errOut, want)
	}
	_, errOut, code = ringcache(t, "serve", "--sise=1GiB")
	require.Equal(t, 80, code)
	require.Contains(t, errOut, "--size")
	cmd := command("serve", "--print-config")
	cmd.Env = append(cmd.Env, "RINGCACHE_SISE=1GiB")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 78, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "did you mean RINGCACHE_SIZE?")
	left, err := os.ReadDir(s.shm)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestServePrintsItsConfiguration, which is a file that gives the same one.
func TestServePrintsItsConfiguration(t *testing.T) {
	flags := []string{"serve", "--print-config", "--size=3GiB", "--quotas=a=1MiB,b=2MiB", "--quotas=c=1", "--disk=/d?shared=true", "--redis=h:1,h:2", "--no-prefault", "--http=off"}
	out, _, code := ringcache(t, flags...)
	require.Zero(t, code)
	require.Contains(t, out, "size: 3GiB\n")
	require.Contains(t, out, "- c=1\n")
	file := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte(out), 0o600))
	again, errOut, code := ringcache(t, "serve", "--print-config", "--config", file)
	require.Zero(t, code, errOut)
	require.Equal(t, out, again)
	cmd := command("serve", "--print-config")
	cmd.Env = append(cmd.Env, "RINGCACHE_CONFIG="+file)
	b, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, out, string(b))
}

// TestServeEndsAtOnce by a second signal, although its drain has ten minutes for a Redis that is away; what
// was pending is not lost.
func TestServeEndsAtOnce(t *testing.T) {
	away := filepath.Join(t.TempDir(), "redis.sock")
	s := newServing(t, "--redis", "unix://"+away, "--drain", "10m")
	s.start()
	c := s.dial()
	put(t, c, "lease", "name", []byte("data"))
	require.Equal(t, 1, askOf(t, s).Backlog)
	s.signal(syscall.SIGTERM)
	s.wait("msg=ending")
	s.waitPhase("draining")
	for start := time.Now(); ; time.Sleep(time.Millisecond) { // a request that came a moment before is answered
		if _, err := c.Stat(t.Context(), wire.Request{}); err != nil {
			break
		}
		require.Less(t, time.Since(start), patience, "no more requests")
	}
	s.signal(syscall.SIGTERM)
	require.Equal(t, 1, s.end(), s.text())
	require.Contains(t, s.text(), "ended at once by a second signal")

	s.start("--drain", "0s")
	require.Equal(t, 1, askOf(t, s).Backlog)
	s.signal(syscall.SIGTERM)
	require.Zero(t, s.end(), s.text())
	require.Contains(t, s.text(), "they stay in the segment")
}

// waitPhase waits until /readyz gives a reason.
func (s *serving) waitPhase(text string) {
	s.t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if code, body := s.get("/readyz"); code != 200 && strings.Contains(body, text) {
			return
		}
		require.Less(s.t, time.Since(start), patience, s.text())
	}
}

// TestServeByAServiceManager: it gets its socket, and hears of start, reload and end.
func TestServeByAServiceManager(t *testing.T) {
	s := newServing(t)
	dir := filepath.Dir(filepath.Dir(s.socket))
	s.socket = filepath.Join(dir, "passed")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	require.NoError(t, err)
	defer l.Close()
	passed, err := l.File()
	require.NoError(t, err)
	defer passed.Close()
	messages, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer messages.Close()
	next := func(want string) string {
		t.Helper()
		for b := make([]byte, 4096); ; {
			require.NoError(t, messages.SetDeadline(time.Now().Add(patience)))
			n, err := messages.Read(b)
			require.NoError(t, err, "%s\n%s", want, s.text())
			if strings.Contains(string(b[:n]), want) {
				return string(b[:n])
			}
		}
	}
	// The variables name the process, which is the shell's after exec.
	args := append([]string{"-c", `LISTEN_PID=$$ WATCHDOG_PID=$$ exec "$@"`, "sh", os.Args[0], "serve"}, s.flags...)
	cmd := exec.Command("/bin/sh", append(args, "--socket="+s.socket)...)
	cmd.Env = append(os.Environ(), "RINGCACHE_TEST_COMMAND=1", "NOTIFY_SOCKET="+messages.LocalAddr().String(), "LISTEN_FDS=1", "WATCHDOG_USEC=300000")
	cmd.ExtraFiles = []*os.File{passed}
	s.launch(cmd)
	next("READY=1")
	put(t, s.dial(), "lease", "name", []byte("data"))
	next("WATCHDOG=1")
	s.signal(syscall.SIGHUP)
	require.Contains(t, next("RELOADING=1"), "MONOTONIC_USEC=")
	next("READY=1")
	s.signal(syscall.SIGTERM)
	next("STOPPING=1")
	require.Zero(t, s.end(), s.text())
	require.FileExists(t, s.socket, "it is the manager's")
	require.NotContains(t, s.text(), "second daemon", "who listens is the daemon itself, by the manager's socket")
}

func TestServeStatusWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "there is no such socket",
		file:                       "no daemon listens at " + file,
	} {
		_, errOut, code := ringcache(t, "serve", "status", "--socket", path)
		require.Equal(t, 1, code)
		require.Contains(t, errOut, want)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "silent"))
	require.NoError(t, err)
	defer l.Close()
	_, errOut, code := ringcache(t, "serve", "status", "--timeout", "10ms", "--socket", l.Addr().String())
	require.Equal(t, 1, code)
	require.Contains(t, errOut, "does not answer")
}

// TestServeCheck: a line for everything that a daemon opens; the exit status is that of the daemon. What
// fails, and why, is the matter of package daemon's tests.
func TestServeCheck(t *testing.T) {
	s := newServing(t, "--disk", filepath.Join(t.TempDir(), "disk"))
	check := append([]string{"serve", "check"}, s.flags...)
	out, _, code := ringcache(t, check...)
	require.Zero(t, code, out)
	for _, line := range []string{"ok: max-connections: ", "ok: name: the segment ringcache of 1MiB is made", "ok: disk: ", "ok: socket: ", "ok: http: 127.0.0.1:0 is free", "the configuration is right"} {
		require.Contains(t, "\n"+out, "\n"+line)
	}
	left, err := os.ReadDir(s.shm)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoDirExists(t, filepath.Dir(s.socket))
	require.NoDirExists(t, s.flags[len(s.flags)-1])
	out, errOut, code := ringcache(t, append(check, "--size=1000TiB")...)
	require.Equal(t, 1, code)
	require.Contains(t, out, "error: name: size: ")
	require.Contains(t, errOut, "the daemon can't start: 1 errors")
	_, _, code = ringcache(t, append(check, "--size=x")...)
	require.Equal(t, 78, code)
	out, _, code = ringcache(t, append(check, "--redis=unix://"+s.socket+"none")...)
	require.Zero(t, code, out)
	require.Contains(t, out, "\nwarning: redis: the Redis does not answer")
	s.start()
	out, _, code = ringcache(t, append(check, "--http", s.http())...)
	require.Equal(t, 1, code, out)
	for _, line := range []string{"error: name: another process", "error: disk: ", "error: socket: another daemon", "error: http: "} {
		require.Contains(t, "\n"+out, "\n"+line)
	}
	require.Empty(t, askOf(t, s).Leases, "the daemon noticed nothing")
}

// TestSweepOfADaemon: what a killed daemon left is shown and removed, and what a living one has stays.
func TestSweepOfADaemon(t *testing.T) {
	s := newServing(t)
	s.start()
	args := []string{"sweep", "ringcache", "--dir", s.shm, "--owner", "ringcache serve", "--socket", s.socket, "--remove"}
	out, _, code := ringcache(t, args...)
	require.Zero(t, code)
	require.Regexp(t, `(?m)^ringcache +"ringcache serve" +\d+ +\S+ MiB +alive\n.*/run/s +- +- +- +alive$`, out)
	require.NotNil(t, s.dial())
	require.NoError(t, s.cmd.Process.Kill())
	s.end()
	out, _, _ = ringcache(t, args[:len(args)-1]...)
	require.Regexp(t, `(?s) orphan\n.* stale\n`, out)
	require.FileExists(t, s.socket)
	_, errOut, code := ringcache(t, "sweep", "ringcache", "--dir", s.shm, "--remove")
	require.Equal(t, 1, code, "without its label it is not touched")
	require.Contains(t, errOut, "--owner LABEL")
	out, _, code = ringcache(t, args...)
	require.Zero(t, code)
	require.Regexp(t, `(?s) removed\n.* removed\n`, out)
	for _, dir := range []string{s.shm, filepath.Dir(s.socket)} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestSizesForPeople(t *testing.T) {
	for n, want := range map[int64]string{-1: "?", 0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 29: "1.50 GiB", 2 << 40: "2048.00 GiB"} {
		require.Equal(t, want, size(n))
	}
}
