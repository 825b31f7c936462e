//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is what anything may take on a busy machine: the start of an engine, an answer.
const patience = 10 * time.Minute

// process is a program that ends with the test, and with this process, however that ends.
type process struct {
	t     testing.TB
	name  string
	pid   int
	ended chan struct{}
	err   error // how it ended
	mu    sync.Mutex
	log   bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) words() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// noise is what each image makes a worker say that lives in the process of vLLM's frontend.
var noise = regexp.MustCompile(`.*use .torch.set_num_threads. after the thread binding.*\n`)

// runs starts a command, whose words on stderr are kept.
func runs(t testing.TB, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, ended: make(chan struct{})}
	cmd.Stderr = p
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel ends the process together with the thread that started it
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	require.NoError(t, <-started)
	p.pid = cmd.Process.Pid
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			words := noise.ReplaceAllString(p.words(), "")
			t.Logf("%s said:\n%s", name, words[max(0, len(words)-8000):])
		}
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if p.running() {
		require.NoError(p.t, syscall.Kill(p.pid, s))
	}
}

// kill ends it by SIGKILL and waits for its end.
func (p *process) kill() {
	if p.running() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // may end by itself just now
	}
	<-p.ended
}

// wait waits for its end.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(patience):
		require.Fail(p.t, p.name+" does not end", p.words())
		return nil
	}
}

// cacheServer is `ringcache serve` with a segment and a socket of its own.
type cacheServer struct {
	*process
	t       testing.TB
	segment string
	socket  string
	args    []string
	program string          // "" is that of this commit
	on      func(*exec.Cmd) // puts it, and engines that use it, on a host of package hosttest; nil is this one
}

var serveBinary = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(work, "ringcache")
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/ringcache").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

// newCacheServer does not start it.
func newCacheServer(t testing.TB, args ...string) *cacheServer {
	t.Helper()
	folder, err := os.MkdirTemp("", "ec") // short, as paths of sockets have to be
	require.NoError(t, err)
	s := &cacheServer{t: t, segment: "ringcache-" + filepath.Base(folder), socket: filepath.Join(folder, "socket")}
	s.args = append([]string{"serve", "--socket", s.socket, "--name", s.segment, "--http", "off"}, args...)
	if !strings.Contains(strings.Join(args, " "), "--size") {
		s.args = append(s.args, "--size", "64MiB")
	}
	t.Cleanup(func() {
		if s.process != nil {
			s.kill()
		}
		s.loseMemory()
		require.NoError(t, os.RemoveAll(folder))
	})
	return s
}

// start returns when it takes connections.
func (s *cacheServer) start() {
	s.t.Helper()
	bin := s.program
	if bin == "" {
		var err error
		bin, err = serveBinary()
		require.NoError(s.t, err)
	}
	cmd := exec.Command(bin, s.args...)
	if s.on != nil {
		s.on(cmd)
	}
	s.process = runs(s.t, "ringcache serve", cmd)
	require.Eventually(s.t, func() bool {
		if !s.running() {
			return true
		}
		c, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = c.Close() // nothing was said on it
		}
		return err == nil
	}, patience, 5*time.Millisecond, "ringcache serve does not listen")
	require.True(s.t, s.running(), "ringcache serve has ended: %s", s.words())
}

// stop ends it in order.
func (s *cacheServer) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	require.NoError(s.t, s.wait())
}

// restart kills and starts it.
func (s *cacheServer) restart() {
	s.t.Helper()
	s.kill()
	s.start()
}

// loseMemory removes what it has in shared memory. It must not run.
func (s *cacheServer) loseMemory() {
	s.t.Helper()
	files, err := filepath.Glob("/dev/shm/" + s.segment + "*")
	require.NoError(s.t, err)
	for _, f := range files {
		require.NoError(s.t, os.Remove(f))
	}
}

// encoderSetup is an engine whose encoder cache a connector serves.
type encoderSetup struct {
	kind
	tp    int
	role  string         // none: no connector
	extra map[string]any // options of the connector
	tree  string         // folder of vLLM's own ECExampleConnector, which then takes the place of ours
	flags []string
}

// encoderEngine is a whole offline engine in a process of its own, see encoder_engine.py.
type encoderEngine struct {
	*process
	t     testing.TB
	s     encoderSetup
	ref   *reference
	stdin io.WriteCloser
	lines chan []byte
}

// said is a line of the engine.
type said struct {
	Ready *struct {
		PIDs    []int
		Seconds float64
	}
	Answers []struct {
		Tokens      []uint32
		Finish      string
		Identifiers []string
	}
	Seconds float64
	Pending *int
	Workers []observed
	Counts  map[string]int // of the engine's metrics
	Error   string
}

// observed is what a worker did for an answer.
type observed struct {
	Calls, Items int // of the vision tower
	Loads, Saves int // by the connector
	Armed        bool
}

// startEncoder begins to start an engine; ready waits for it.
func startEncoder(t testing.TB, s encoderSetup, server *cacheServer) *encoderEngine {
	t.Helper()
	s.version, s.model, s.tp = cmp.Or(s.version, newest), cmp.Or(s.model, "llava"), max(s.tp, 1)
	e := &encoderEngine{t: t, s: s, ref: referenceOf(t, s.kind), lines: make(chan []byte)}
	args := []string{"--inputs", filepath.Join(e.ref.dir, "inputs.json"), "--tp", strconv.Itoa(s.tp)}
	if config := e.config(server); config != nil {
		b, err := json.Marshal(config)
		require.NoError(t, err)
		args = append(args, "--ec", string(b))
	}
	cmd := s.command(t, "encoder_engine.py", append(args, s.flags...)...)
	source, err := filepath.Abs(filepath.Join("..", "..", "python", "src"))
	require.NoError(t, err)
	cmd.Env = append(cmd.Env, "PYTHONPATH="+source)
	if server != nil && server.on != nil {
		server.on(cmd)
	}
	e.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	stdout, write, err := os.Pipe() // of our own, since the command's would be closed before all is read
	require.NoError(t, err)
	cmd.Stdout = write
	e.process = runs(t, "the engine", cmd)
	require.NoError(t, write.Close())
	go func() {
		defer close(e.lines)
		defer stdout.Close()
		for r := bufio.NewReader(stdout); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			e.lines <- line
		}
	}()
	t.Cleanup(func() { // before that of the process, which kills it
		_ = e.stdin.Close()
		if t.Failed() {
			e.kill()
		}
		for range e.lines { // until it has ended
		}
	})
	return e
}

func (e *encoderEngine) config(server *cacheServer) map[string]any {
	switch {
	case e.s.role == "":
		return nil
	case e.s.tree != "":
		return map[string]any{
			"ec_connector": "ECExampleConnector", "ec_role": e.s.role,
			"ec_connector_extra_config": map[string]any{"shared_storage_path": e.s.tree},
		}
	}
	// A busy machine may take its time; what is here is no proof of how long.
	extra := map[string]any{"socket": server.socket, "timeout": 30, "wait": 60}
	for k, v := range e.s.extra {
		extra[k] = v
	}
	return map[string]any{
		"ec_connector": "EncoderCacheConnector", "ec_connector_module_path": "ringcache.vllm", "ec_role": e.s.role,
		"ec_connector_extra_config": extra,
	}
}

// newEncoder starts an engine and waits until it is ready.
func newEncoder(t testing.TB, s encoderSetup, server *cacheServer) *encoderEngine {
	t.Helper()
	e := startEncoder(t, s, server)
	e.ready()
	return e
}

func (e *encoderEngine) ready() {
	e.t.Helper()
	said := e.next()
	require.NotNil(e.t, said.Ready, "%+v", said)
	require.Len(e.t, said.Ready.PIDs, e.s.tp)
	e.t.Logf("%s engine with %s, %d workers, ready after %.0f s", cmp.Or(e.s.role, "plain"), e.s.model, e.s.tp,
		said.Ready.Seconds)
}

// next is the next line of the engine.
func (e *encoderEngine) next() (s said) {
	e.t.Helper()
	select {
	case line, ok := <-e.lines:
		require.True(e.t, ok, "the engine has ended: %s", e.words())
		require.NoError(e.t, json.Unmarshal(line, &s), string(line))
	case <-time.After(patience):
		require.Fail(e.t, "the engine does not answer", e.words())
	}
	return s
}

func (e *encoderEngine) send(command map[string]any) {
	e.t.Helper()
	b, err := json.Marshal(command)
	require.NoError(e.t, err)
	_, err = e.stdin.Write(append(b, '\n'))
	require.NoError(e.t, err)
}

func (e *encoderEngine) do(command map[string]any) said {
	e.t.Helper()
	e.send(command)
	said := e.next()
	require.Empty(e.t, said.Error, e.words())
	return said
}

// ask has the engine answer inputs, all at once.
func (e *encoderEngine) ask(names ...string) said {
	e.t.Helper()
	e.send(map[string]any{"ask": names})
	return e.answered(names...)
}

// answered waits for the answer to ask.
func (e *encoderEngine) answered(names ...string) said {
	e.t.Helper()
	a := e.next()
	require.Empty(e.t, a.Error, e.words())
	require.Len(e.t, a.Answers, len(names))
	require.Len(e.t, a.Workers, e.s.tp)
	return a
}

// right asks, and compares the tokens with those of an engine that has no connector.
func (e *encoderEngine) right(names ...string) said {
	e.t.Helper()
	return e.check(e.ask(names...), names...)
}

func (e *encoderEngine) check(a said, names ...string) said {
	e.t.Helper()
	for i, name := range names {
		want := e.ref.named(e.t, name)
		require.Equal(e.t, want.Tokens, a.Answers[i].Tokens, name)
		require.Equal(e.t, want.Finish, a.Answers[i].Finish, name)
	}
	return a
}

// does is right, and compares what each worker did: images encoded by the vision tower, and images loaded by
// the connector.
func (e *encoderEngine) does(encoded, loaded int, names ...string) said {
	e.t.Helper()
	a := e.right(names...)
	for i, w := range a.Workers {
		require.Equal(e.t, encoded, w.Items, "images encoded by worker %d for %v", i, names)
		require.Equal(e.t, encoded > 0, w.Calls > 0, "calls of the vision tower of worker %d for %v: %d", i, names,
			w.Calls)
		require.Equal(e.t, loaded, w.Loads, "images loaded by worker %d for %v", i, names)
	}
	return a
}

// again is does with nothing in the engine's own cache.
func (e *encoderEngine) again(encoded, loaded int, names ...string) said {
	e.t.Helper()
	e.forget()
	return e.does(encoded, loaded, names...)
}

// recovers asks, always with right tokens, until all images are loaded again.
func (e *encoderEngine) recovers(names ...string) {
	e.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		e.forget()
		a, encoded := e.right(names...), 0
		for _, w := range a.Workers {
			encoded += w.Items
		}
		if encoded == 0 {
			return
		}
		require.True(e.t, time.Now().Before(end), "images are still encoded: %+v\n%s", a.Workers, e.words())
	}
}

// numbered is "image3", "image4" and so on.
func numbered(from, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("image", from+i))
	}
	return names
}

// forget empties the engine's own encoder cache, so that the connector is asked again.
func (e *encoderEngine) forget() { e.t.Helper(); e.do(map[string]any{"reset": "encoder"}) }

// arm has the server killed when a worker's connector is next called to load, or to save.
func (e *encoderEngine) arm(at string, s *cacheServer) {
	e.t.Helper()
	e.do(map[string]any{"arm": at, "pid": s.pid})
}

// hold has the engine wait when a worker's connector is next called to load, and the server killed before if
// it is given.
func (e *encoderEngine) hold(s *cacheServer) *held {
	e.t.Helper()
	h := &held{t: e.t, file: filepath.Join(e.t.TempDir(), "go-on")}
	command := map[string]any{"arm": "load", "until": h.file}
	if s != nil {
		command["pid"] = s.pid
	}
	e.do(command)
	return h
}

type held struct {
	t    testing.TB
	file string
}

func (h *held) reached() {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		_, err := os.Stat(h.file + ".reached")
		return err == nil
	}, patience, time.Millisecond, "the engine loads nothing")
}

func (h *held) goOn() { h.t.Helper(); require.NoError(h.t, os.WriteFile(h.file, nil, 0o600)) }

// end ends the engine in order.
func (e *encoderEngine) end() {
	e.t.Helper()
	require.NoError(e.t, e.stdin.Close())
	require.NoError(e.t, e.wait())
}
