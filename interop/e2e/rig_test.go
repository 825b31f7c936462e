//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/engine/zmq"
	"github.com/ringcache/ringcache/mmcache"
)

// work is the folder of everything that the tests write.
var work string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if work, err = os.MkdirTemp("", "ringcache-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(work)
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// setup is the engine to run, and the cache before it.
type setup struct {
	kind
	tp    int
	mode  string
	ring  int // bytes; 0 is 16 MiB
	set   []string
	flags []string
	env   []string // of the engine, on top of its own
	serve bool     // by vLLM's own command
}

// rig is a client with a real engine.
type rig struct {
	*engine.Client
	t     testing.TB
	s     setup
	ref   *reference
	cache mmcache.Cache
	log   *bytes.Buffer // of the engine; read it when the engine has ended
	logMu sync.Mutex
	ctx   context.Context
}

func newRig(t testing.TB, s setup) *rig {
	t.Helper()
	if s.version == "" {
		s.version = newest
	}
	if s.model == "" {
		s.model = "llava"
	}
	s.tp, s.mode = max(s.tp, 1), cmp.Or(s.mode, "lru")
	if s.ring == 0 {
		s.ring = 16 << 20
	}
	r := &rig{t: t, s: s, ref: referenceOf(t, s.kind), log: &bytes.Buffer{}}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), 30*time.Minute)
	t.Cleanup(cancel)
	var err error
	r.cache, err = mmcache.Open(mmcache.Options{
		Mode: s.mode, Generation: s.generation(t), Capacity: float64(s.ring), MaxItem: 1 << 20,
		Shared: mmcache.SharedOptions{Readers: 1, MaxObject: min(1<<20, s.ring)},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.cache.CheckStructure())
		require.NoError(t, r.cache.Close())
	})
	o := engine.Options{
		Transport: zmq.Transport{}, Cache: r.cache, Model: s.requirements(t), Command: r.command,
		StartTimeout: 5 * time.Minute,
		Logger:       slog.New(slog.NewTextHandler(r, nil)),
	}
	r.Client, err = engine.New(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(t, r.Close(over))
		if t.Failed() {
			t.Log(r.words())
		}
	})
	began := time.Now()
	require.NoError(t, r.Start(r.ctx))
	t.Logf("vLLM %s with %s, %d workers, ready after %.0f s", r.Ready().VLLMVersion, s.model, r.Ready().WorldSize,
		time.Since(began).Seconds())
	require.Equal(t, s.tp, r.Ready().WorldSize)
	require.Same(t, kind{version: s.version}.generation(t), kind{version: r.Ready().VLLMVersion}.generation(t))
	return r
}

// command starts the engine, which ends with this process.
func (r *rig) command(a engine.Address) *exec.Cmd {
	if r.s.serve {
		return r.serve(a)
	}
	args := []string{
		"--handshake", a.Handshake, "--tp", strconv.Itoa(r.s.tp), "--cache-type", r.s.mode, "--die-with-stdin",
		"--cache-gb", strconv.FormatFloat(float64(r.s.ring)/(1<<30), 'g', -1, 64),
	}
	if a.Segment != "" {
		args = append(args, "--shm", a.Segment)
	}
	for _, s := range r.s.set {
		args = append(args, "--set", s)
	}
	cmd := r.s.command(r.t, "launch.py", append(args, r.s.flags...)...)
	cmd.Env = append(cmd.Env, r.s.env...)
	cmd.Stdout, cmd.Stderr = io.Writer(r), io.Writer(r)
	_, err := cmd.StdinPipe() // closed when the command was waited for
	require.NoError(r.t, err)
	return cmd
}

// Write takes the engine's log.
func (r *rig) Write(p []byte) (int, error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.Write(p)
}

func (r *rig) words() string {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.String()
}

// enginePid is the process that the frontend's sockets lead to.
func (r *rig) enginePid() int {
	words := r.words()
	at := strings.LastIndex(words, "engine_pid=")
	require.GreaterOrEqual(r.t, at, 0)
	var pid int
	_, err := fmt.Sscanf(words[at:], "engine_pid=%d", &pid)
	require.NoError(r.t, err)
	return pid
}

// balanced checks the counts in the segment: every worker has read every handle
// that was issued.
func (r *rig) balanced() {
	r.t.Helper()
	st, err := r.cache.(*mmcache.Shared).State()
	require.NoError(r.t, err)
	require.Equal(r.t, r.s.tp, st.Readers)
	uses := int64(0)
	for _, o := range st.Objects {
		require.Equal(r.t, o.Uses*int64(st.Readers), o.Reads, "reads of %s", o.Key)
		uses += o.Uses
	}
	r.t.Logf("%d objects, issued %d times, each read by %d workers", len(st.Objects), uses, st.Readers)
}

// drained shows that nothing keeps anything: when all requests have ended, and a
// fence has passed, everything can go.
func (r *rig) drained() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return r.Stats().InFlight == 0 && r.cache.Stats().Quarantined == 0
	}, 5*time.Minute, 5*time.Millisecond, "the items of aborted requests are still kept")
	require.NoError(r.t, r.ClearItems(r.ctx))
	require.Zero(r.t, r.cache.Stats().CachedBytes)
}

// sound verifies that no worker complained.
func (r *rig) sound() {
	r.t.Helper()
	require.NoError(r.t, r.Check(r.ctx))
	for _, s := range []string{"modified or is invalid", "Traceback", "Invalid SHM handle"} {
		require.NotContains(r.t, r.words(), s)
	}
}
