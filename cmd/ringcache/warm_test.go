package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// warmEngine answers chat requests by answer, which returns whether it has. It has no connector.
func warmEngine(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, url string) bool) string {
	return warmEngineWith(t, func() string { return "" }, answer)
}

func warmEngineWith(t *testing.T, metrics func() string,
	answer func(w http.ResponseWriter, r *http.Request, url string) bool) string {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, metrics()) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"id":"tiny"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Messages []struct {
				Content []struct {
					Image struct{ URL string } `json:"image_url"`
				}
			}
		}
		if json.NewDecoder(r.Body).Decode(&q) == nil &&
			(answer == nil || !answer(w, r, q.Messages[0].Content[0].Image.URL)) {
			_, _ = io.WriteString(w, `{"choices":[{}]}`)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// warmed parses a command line as main does, and runs it.
func warmed(ctx context.Context, t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var c commands
	parser, err := kong.New(&c, options()...)
	require.NoError(t, err)
	_, err = parser.Parse(append([]string{"warm"}, args...))
	require.NoError(t, err)
	var out, log bytes.Buffer
	err = c.Warm.run(ctx, strings.NewReader(stdin), &out, &log)
	return out.String(), log.String(), err
}

func warmFolder(t *testing.T, n int) string {
	dir := t.TempDir()
	for i := range n {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.png", i)),
			fmt.Appendf(nil, "\x89PNG\r\n\x1a\n%d", i), 0o600))
	}
	return dir
}

func TestWarmCommand(t *testing.T) {
	dir := warmFolder(t, 40)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600))
	state := filepath.Join(t.TempDir(), "state")
	t.Setenv("VLLM_API_KEY", "secret")
	url := warmEngine(t, func(w http.ResponseWriter, r *http.Request, _ string) bool {
		if r.Header.Get("Authorization") == "Bearer secret" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	out, log, err := warmed(t.Context(), t, "", "--url", url, "--state", state, dir)
	require.NoError(t, err)
	require.Equal(t, "40 images found, 1 other files skipped\n40 images sent to tiny, 0 known before, 0 failed\n"+
		"loaded or encoded is unknown: the engine's metrics have no counts of the connector\n", out)
	require.Equal(t, 20, strings.Count(log, "\n"), "lines, since there is no terminal")
	require.Contains(t, log, "images: 20 of 40\n")
	require.Contains(t, log, "images: 40 of 40\n")

	out, _, err = warmed(t.Context(), t, dir+"\n", "--url", url, "--state", state, "--list", "-")
	require.NoError(t, err)
	require.Contains(t, out, "0 images sent to tiny, 40 known before, 0 failed\n")
}

func TestWarmFailures(t *testing.T) {
	dir := warmFolder(t, 3)
	list := filepath.Join(t.TempDir(), "a, list") // a comma is part of the name
	odd := filepath.Join(dir, "go\nne.png")
	require.NoError(t, os.WriteFile(list, []byte(dir+"\n"+filepath.Join(dir, "gone.png")+"\n"), 0o600))
	url := warmEngine(t, func(w http.ResponseWriter, _ *http.Request, image string) bool {
		if !strings.HasSuffix(image, "Ggoy") { // the last three bytes of 002.png
			return false
		}
		http.Error(w, `{"error":{"message":"bad image"}}`, http.StatusBadRequest)
		return true
	})
	out, log, err := warmed(t.Context(), t, "", "--url", url, "--list", list, "--list", list, odd)
	require.EqualError(t, err, "5 images failed")
	require.Contains(t, out, "2 images sent to tiny, 2 known before, 5 failed\n")
	require.Contains(t, log, "failed: "+filepath.Join(dir,
		"002.png")+": the engine answered 400 Bad Request: bad image\n")
	require.Contains(t, log, "failed: "+filepath.Join(dir, "gone.png")+": no such file or directory\n")
	require.Contains(t, log, `go\nne.png": no such file`)
	require.Contains(t, log, "images (1 failed): ")

	_, _, err = warmed(t.Context(), t, "", "--url", url)
	require.ErrorContains(t, err, "nothing to send")
	_, _, err = warmed(t.Context(), t, "", "--url", "nonsense", dir)
	require.ErrorContains(t, err, "http://127.0.0.1:8000")
	_, _, err = warmed(t.Context(), t, "", "--list", filepath.Join(dir, "gone"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestWarmNoImages: that there are none is said at once, not when an engine and a daemon have been waited
// for.
func TestWarmNoImages(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("x"), 0o600))
	nobody := []string{"--url", "http://127.0.0.1:1", "--patience", "24h", "--socket", filepath.Join(dir, "none")}
	out, _, err := warmed(t.Context(), t, "", append(nobody, dir)...)
	require.ErrorContains(t, err, "no images, so nothing is sent")
	require.Equal(t, "0 images found, 1 other files skipped\n", out)
	_, log, err := warmed(t.Context(), t, "", append(nobody, filepath.Join(dir, "gone"))...)
	require.ErrorContains(t, err, "no images, so nothing is sent")
	require.Contains(t, log, "failed: "+filepath.Join(dir, "gone")+": no such file or directory\n")
}

// TestWarmTellsLoadedFromEncoded: by what the engine's metrics count.
func TestWarmTellsLoadedFromEncoded(t *testing.T) {
	dir := warmFolder(t, 6)
	var hits, misses atomic.Int64
	hits.Store(10)
	misses.Store(20)
	for _, c := range []struct {
		hits, misses int64 // for each image
		want         string
	}{
		{1, 0, "6 loaded, 0 encoded"},
		{0, 1, "0 loaded, 6 encoded"},
		{0, 0, "0 loaded, 0 encoded, 6 in the engine's own caches"},
		{1, 2, "6 loaded, 12 encoded, more than were sent: others asked the engine, too, or a request was sent twice"},
	} {
		url := warmEngineWith(t, func() string {
			return fmt.Sprintf("vllm:ringcache_encoder_hits_total{engine=\"0\",model_name=\"tiny\"} %d.0\nvllm:ringcache_encoder_misses_total{engine=\"0\"} %d.0\n", hits.Load(), misses.Load())
		}, func(http.ResponseWriter, *http.Request, string) bool {
			hits.Add(c.hits)
			misses.Add(c.misses)
			return false
		})
		out, _, err := warmed(t.Context(), t, "", "--url", url, dir)
		require.NoError(t, err)
		require.Equal(t, "6 images found, 0 other files skipped\n6 images sent to tiny, 0 known before, 0 failed\n"+c.want+"\n", out)
	}
}

// TestWarmHintsAtAnotherSocket: an engine that encodes, and a daemon that gets nothing of it, do not belong
// together. Nothing is odd about outputs that were loaded, or that the engine had in its own caches.
func TestWarmHintsAtAnotherSocket(t *testing.T) {
	dir := warmFolder(t, 6)
	for _, c := range []struct {
		hits, misses int64 // for each image
		want         string
	}{
		{0, 1, "nothing is new, although the engine has encoded 6 outputs: does it have this socket, and is it an ec_consumer, which stores nothing?"},
		{1, 0, ""},
		{0, 0, ""},
	} {
		var hits, misses atomic.Int64
		url := warmEngineWith(t, func() string {
			return fmt.Sprintf("vllm:ringcache_encoder_hits_total %d\nvllm:ringcache_encoder_misses_total %d\n",
				hits.Load(), misses.Load())
		}, func(http.ResponseWriter, *http.Request, string) bool {
			hits.Add(c.hits)
			misses.Add(c.misses)
			return false
		})
		socket := warmDaemon(t, func() wire.State {
			return wire.State{Levels: []wire.Level{{Name: "memory", Objects: 5, Capacity: 64 << 20}}}
		})
		out, _, err := warmed(t.Context(), t, "", "--url", url, "--socket", socket, dir)
		require.NoError(t, err)
		if c.want == "" {
			require.NotContains(t, out, "nothing is new")
		} else {
			require.Contains(t, out, c.want)
		}
	}
}

func TestWarmIsInterrupted(t *testing.T) {
	dir := warmFolder(t, 5)
	ctx, cancel := context.WithCancel(t.Context())
	url := warmEngine(t, func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		cancel()
		<-r.Context().Done()
		return true
	})
	out, log, err := warmed(ctx, t, "", "--url", url, dir)
	require.ErrorContains(t, err, "interrupted, 5 images are left (with --state the next run would go on there)")
	require.Contains(t, out, "0 images sent to tiny")
	require.NotContains(t, log, "failed")
}

func TestWarmWaits(t *testing.T) {
	dir := warmFolder(t, 1)
	busy := 2
	url := warmEngine(t, func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		if busy--; busy < 0 {
			return false
		}
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	_, log, err := warmed(t.Context(), t, "", "--url", url, dir)
	require.NoError(t, err)
	require.Equal(t, "waiting for the engine: the engine answered 429 Too Many Requests: without a reason\nimages: 1 of 1\n", log, "a reason is shown once")

	_, _, err = warmed(t.Context(), t, "", "--url", "http://127.0.0.1:1", "--patience", time.Microsecond.String(),
		"--model", "m", dir)
	require.ErrorContains(t, err, "1 images are left (with --state the next run would go on there)")
	require.ErrorContains(t, err, "connection refused")
}

// warmDaemon is a daemon with these states, which are asked for each time.
func warmDaemon(t *testing.T, states func() wire.State) (socket string) {
	dir, err := os.MkdirTemp("", "warm") // t.TempDir can be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerStat(conn, states)
		}
	}()
	return socket
}

func answerStat(conn net.Conn, states func() wire.State) {
	defer conn.Close()
	for r := wire.NewReader(conn, wire.MaxRequest); ; {
		body, err := r.Next()
		if err != nil {
			return
		}
		var q wire.Request
		if wire.DecodeRequest(body, &q) != nil {
			return
		}
		p := wire.Reply{ID: q.ID}
		if q.Op == wire.Hello && q.Client != "ringcache warm" {
			p.Error = &wire.Error{Kind: wire.KindInvalid, Text: "the client is " + q.Client}
		} else if q.Op == wire.Hello {
			p.Version, p.Server = wire.Version, "test"
			p.Segment, p.Limits = &wire.Segment{Name: "s", Size: 1 << 20, Generation: 1, Inode: 1},
				&wire.Limits{Names: 1, Seconds: 1, Held: 1, Leases: 1}
		} else {
			s := states()
			p.State = &s
		}
		b, err := wire.AppendReply(nil, &p)
		if err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

func TestWarmShowsTiers(t *testing.T) {
	dir := warmFolder(t, 2)
	url := warmEngine(t, nil)
	calls := 0
	socket := warmDaemon(t, func() wire.State {
		calls++
		objects := int64(5)
		if calls > 1 {
			objects = 7
		}
		return wire.State{Backlog: 3, Levels: []wire.Level{{Name: "memory", Objects: objects, Bytes: objects << 20,
			Capacity: 64 << 20}, {Name: "redis", Away: true, Objects: -1, Bytes: -1, Capacity: -1}}}
	})
	out, _, err := warmed(t.Context(), t, "", "--url", url, "--socket", socket, "--patience", "1ms", dir)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^memory +up +7 +\+2 +7\.0 MiB +64\.0 MiB +0$`, out)
	require.Regexp(t, `(?m)^redis +away +\? +\? +\? +\? +0$`, out)
	require.Contains(t, out, "3 objects wait to be written")

	// Nothing is new: perhaps it was there.
	state := wire.State{Levels: []wire.Level{{Name: "memory", Objects: 5, Capacity: 64 << 20},
		{Name: "redis", Objects: -1, Bytes: -1, Capacity: -1}}}
	socket = warmDaemon(t, func() wire.State { return state })
	out, _, err = warmed(t.Context(), t, "", "--url", url, "--socket", socket, dir)
	require.NoError(t, err)
	require.Contains(t, out, "+0")
	require.Contains(t, out, "nothing is new: ")

	// Nothing is there: the engine has no connector.
	state.Levels[0].Objects = 0
	_, _, err = warmed(t.Context(), t, "", "--url", url, "--socket", socket, dir)
	require.ErrorContains(t, err, "does the engine run with the connector, and with this socket?")

	// A socket without a daemon is noticed before anything is sent.
	url = warmEngine(t, func(http.ResponseWriter, *http.Request, string) bool {
		t.Error("an image was sent")
		return false
	})
	_, _, err = warmed(t.Context(), t, "", "--url", url, "--socket", filepath.Join(dir, "none"), "--patience", "1ms",
		dir)
	require.ErrorContains(t, err, "no daemon listens at")
}

// TestWarmWaitsForLowerTiers: warm was done while a Redis, through which other hosts find what it has filled, lacked a
// part of it.
func TestWarmWaitsForLowerTiers(t *testing.T) {
	dir := warmFolder(t, 2)
	url := warmEngine(t, nil)
	backlog := 10
	socket := warmDaemon(t, func() wire.State {
		backlog = max(backlog-1, 0)
		return wire.State{Backlog: backlog, Levels: []wire.Level{
			{Name: "memory", Objects: 40}, {Name: "redis", Objects: -1, Bytes: -1, Capacity: -1, Backlog: backlog},
		}}
	})
	out, _, err := warmed(t.Context(), t, "", "--url", url, "--socket", socket, dir)
	require.NoError(t, err)
	require.Zero(t, backlog)
	require.Regexp(t, `(?m)^redis +up +\? +\? +\? +\? +0$`, out)
	require.NotContains(t, out, "wait to be written")

	// Others store all the time, or the tier takes nothing.
	socket = warmDaemon(t, func() wire.State {
		return wire.State{Backlog: 5, Levels: []wire.Level{{Name: "memory", Objects: 5}}}
	})
	out, _, err = warmed(t.Context(), t, "", "--url", url, "--socket", socket, "--patience", "10ms", dir)
	require.NoError(t, err)
	require.Contains(t, out, "5 objects wait to be written to lower tiers: until then, no other host finds them\n")
}

// TestWarmWaitsForTheDaemon: whoever starts both in one line does not have to sleep in between.
func TestWarmWaitsForTheDaemon(t *testing.T) {
	dir := warmFolder(t, 1)
	url := warmEngine(t, nil)
	states := func() wire.State { return wire.State{Levels: []wire.Level{{Name: "memory", Objects: 1}}} }
	later := warmDaemon(t, states)
	socket := later + "2"
	renamed := make(chan error, 1)
	go func() { renamed <- os.Rename(later, socket) }()
	out, _, err := warmed(t.Context(), t, "", "--url", url, "--socket", socket, dir)
	require.NoError(t, <-renamed)
	require.NoError(t, err)
	require.Contains(t, out, "memory")
}

// TestWarmFindsTheSocketAsServeStatusDoes: warm ignored RINGCACHE_SOCKET and the daemon's configuration, and was shown
// to others as "ringcache serve status".
func TestWarmFindsTheSocketAsServeStatusDoes(t *testing.T) {
	dir := warmFolder(t, 1)
	url := warmEngine(t, nil)
	socket := warmDaemon(t, func() wire.State { return wire.State{Levels: []wire.Level{{Name: "memory", Objects: 1}}} })
	config := filepath.Join(t.TempDir(), "ringcache.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "socket: %s\n", socket), 0o600))
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		variable, value string
		args            []string
	}{
		{"RINGCACHE_SOCKET", socket, nil},
		{"RINGCACHE_SOCKET", none, []string{"--socket", socket}},
		{"RINGCACHE_CONFIG", config, nil},
		{"RINGCACHE_CONFIG", "", []string{"--config", config}},
	} {
		t.Run(fmt.Sprint(c.variable, c.args), func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			out, _, err := warmed(t.Context(), t, "", append(c.args, "--url", url, dir)...)
			require.NoError(t, err)
			require.Contains(t, out, "memory")
		})
	}
	t.Setenv("RINGCACHE_SOCKET", none)
	_, _, err := warmed(t.Context(), t, "", "--url", url, "--patience", "1ms", dir)
	require.ErrorContains(t, err, "no daemon listens at "+none)
	t.Setenv("RINGCACHE_SOKET", socket)
	_, _, err = warmed(t.Context(), t, "", "--url", url, dir)
	require.ErrorContains(t, err, "RINGCACHE_SOKET")
}
