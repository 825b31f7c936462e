package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lmcache/lm"
)

// lmConfig is a configuration with a TCP address and a socket for lm://.
func lmConfig(t testing.TB) (c Config, address, socket string) {
	t.Helper()
	c = testConfig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	address, socket = l.Addr().String(), filepath.Join(filepath.Dir(c.Socket), "lm")
	c.LM = []string{address, "unix://" + socket}
	return c, address, socket
}

// running is a daemon that a test runs.
type running struct {
	*runner
	stop  func()
	ended chan error
}

// start runs a daemon until it serves.
func start(t testing.TB, c Config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	d := &running{newRunner(RunOptions{Config: c, Version: "test", Log: io.Discard}), stop, make(chan error, 1)}
	go func() { d.ended <- d.run(ctx) }()
	for d.phase.Load() != phaseServing {
		select {
		case err := <-d.ended:
			t.Fatal("it did not start: ", err)
		case <-time.After(time.Millisecond):
		}
	}
	return d
}

func (d *running) end(t testing.TB) {
	t.Helper()
	d.stop()
	require.NoError(t, <-d.ended)
}

const (
	lmKey   = "org/model@1@0@1234abcd@bfloat16"
	lmOther = "org/model@1@0@5678@bfloat16"
)

var lmMeta = lm.Meta{Format: 1, DType: 3, Shape: [4]int32{2, 1, 4, 4}}

// TestLMInTheDaemon: values outlive the daemon, with what describes them, and are counted.
func TestLMInTheDaemon(t *testing.T) {
	c, address, _ := lmConfig(t)
	d := start(t, c)
	ctx := t.Context()
	client := lm.NewClient(lm.ClientOptions{Address: address})
	require.NoError(t, client.Put(ctx, lmKey, lmMeta, []byte("value")))
	_, _, err := client.Get(ctx, lmOther, nil)
	require.ErrorIs(t, err, lm.ErrMiss)
	_, v, err := client.Get(ctx, lmKey, nil)
	require.NoError(t, err)
	require.Equal(t, "value", string(v))
	collected := `# HELP ringcache_values_total Values of such clients: hit, miss, stored, and dropped: without room, or cut short.
# TYPE ringcache_values_total counter
ringcache_values_total{protocol="lm",result="dropped"} 0
ringcache_values_total{protocol="lm",result="hit"} 1
ringcache_values_total{protocol="lm",result="miss"} 1
ringcache_values_total{protocol="lm",result="stored"} 1
`
	require.NoError(t, testutil.CollectAndCompare(
		&collector{d.runner}, strings.NewReader(collected), "ringcache_values_total"))
	require.Zero(t, d.registry.Counts().Held, "nothing is held between requests")
	var sessions []string
	for _, x := range d.registry.Visits(10) {
		sessions = append(sessions, x.Protocol)
	}
	require.Equal(t, []string{"lm"}, sessions)
	d.end(t)

	d = start(t, c)
	p, v, err := client.Get(ctx, lmKey, nil)
	if err != nil { // the connection was that of the daemon before
		p, v, err = client.Get(ctx, lmKey, nil)
	}
	require.NoError(t, err)
	require.Equal(t, "value", string(v))
	require.Equal(t, lmMeta, p.Meta)
	require.NoError(t, client.Close())
	require.Eventually(t, func() bool { return d.registry.Counts().Sessions == 0 }, 5*time.Minute, time.Millisecond)
	require.NoError(t, d.registry.Check())
	d.end(t)
}

// TestLMFromIsAsked: a daemon with lm-from takes over what clients ask for, and keeps it when the other
// server has gone.
func TestLMFromIsAsked(t *testing.T) {
	c, address, _ := lmConfig(t)
	old := start(t, c)
	ctx := t.Context()
	client := lm.NewClient(lm.ClientOptions{Address: address})
	require.NoError(t, client.Put(ctx, lmKey, lmMeta, []byte("value")))
	found, err := client.Exists(ctx, lmKey) // Put has no answer
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, client.Close())
	c, ours, _ := lmConfig(t)
	c.LMFrom = address
	d := start(t, c)
	client = lm.NewClient(lm.ClientOptions{Address: ours})
	for range 2 {
		p, v, err := client.Get(ctx, lmKey, nil)
		require.NoError(t, err)
		require.Equal(t, "value", string(v))
		require.Equal(t, lmMeta, p.Meta)
		if old != nil {
			old.end(t)
			old = nil
		}
	}
	require.NoError(t, client.Close())
	d.end(t)
}

// TestLMFromIsNotTheDaemonItself: it would ask itself without end.
func TestLMFromIsNotTheDaemonItself(t *testing.T) {
	for from, want := range map[string]string{
		"old:65432": "", "10.0.0.1:65432": "", "127.0.0.1:65433": "", "127.0.0.1:65432": "the daemon itself",
		"localhost:65432": "the daemon itself",
		"old":             "is not HOST:PORT", "old:x": "is not HOST:PORT", ":65432": "is not HOST:PORT",
	} {
		c := testConfig(t)
		c.LM, c.LMFrom, c.ValuesAny = []string{"0.0.0.0:65432"}, from, true
		if want == "" {
			require.NoError(t, c.Validate(), from)
		} else {
			require.ErrorContains(t, c.Validate(), want, from)
		}
	}
	require.False(t, isListener("127.0.0.1:1", "10.0.0.1:1"))
	require.True(t, isListener("10.0.0.1:1", "10.0.0.1:1"))
	c := testConfig(t)
	c.LMFrom = "old:65432"
	require.ErrorContains(t, c.Validate(), "lm is not")
}

// TestLMReadiness: a socket that clients can't find any more is a reason.
func TestLMReadiness(t *testing.T) {
	c, _, socket := lmConfig(t)
	d := start(t, c)
	code, body := get(d.runner, "GET", "/readyz")
	require.Equal(t, 200, code, body)
	require.NoError(t, os.Remove(socket))
	code, body = get(d.runner, "GET", "/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, body, "lm: the socket "+socket+" was removed")
	d.end(t)
}

// TestDaemonEndsWithAListenerOfLM: it does not go on without it.
func TestDaemonEndsWithAListenerOfLM(t *testing.T) {
	c, address, _ := lmConfig(t)
	d := start(t, c)
	require.NoError(t, d.values[0].listeners[0].Close())
	require.ErrorContains(t, <-d.ended, "the listener at "+address)
}

func TestServeCheckOfLM(t *testing.T) {
	c, address, socket := lmConfig(t)
	finding := func() (texts []string) {
		for _, f := range c.Check(t.Context()) {
			if f.Key == "lm" {
				texts = append(texts, f.Text)
			}
		}
		return texts
	}
	require.Equal(t, []string{address + " is free", socket + " is free"}, finding())
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	require.Contains(t, finding()[0], "in use")
	require.NoError(t, l.Close())
}

// TestServeCheckAsksLMFrom: an old server that does not answer is a warning, since the daemon starts without it.
func TestServeCheckAsksLMFrom(t *testing.T) {
	old, address, _ := lmConfig(t)
	c, _, _ := lmConfig(t)
	c.LMFrom = address
	finding := func() Finding {
		all := c.Check(t.Context())
		i := slices.IndexFunc(all, func(f Finding) bool { return f.Key == "lm-from" })
		require.GreaterOrEqual(t, i, 0)
		return all[i]
	}
	f := finding()
	require.Equal(t, slog.LevelWarn, f.Level)
	require.Contains(t, f.Text, "the server does not answer; the daemon starts without it, "+
		"and asks it again for each value: lm:// at "+address)
	d := start(t, old)
	f = finding()
	require.Equal(t, slog.LevelInfo, f.Level)
	require.Equal(t, "lm:// at "+address+" answers", f.Text)
	d.end(t)
}

func TestAddressesOfLM(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:65432": "", "localhost:1": "", "[::1]:7": "", "unix:///run/lm": "",
		"0.0.0.0:65432": "nothing is encrypted", ":65432": "nothing is encrypted", "10.0.0.1:1": "nothing is encrypted",
		"example.com:1": "no IP address", "127.0.0.1": "not HOST:PORT", "127.0.0.1:x": "not HOST:PORT",
		"lm://127.0.0.1:1": "not HOST:PORT",
		"unix://run/lm":    "not unix:///PATH", "unix:///run/lm?x": "not unix:///PATH",
		"unix:///run/lm#x": "not unix:///PATH",
		"":                 "not HOST:PORT",
	} {
		c := testConfig(t)
		c.LM = []string{text}
		err := c.Validate()
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
		c.ValuesAny = true
		if want == "nothing is encrypted" {
			require.NoError(t, c.Validate(), text)
		}
	}
	c := testConfig(t)
	c.LM = []string{"127.0.0.1:1", "127.0.0.1:1"}
	require.ErrorContains(t, c.Validate(), "given twice")
}
