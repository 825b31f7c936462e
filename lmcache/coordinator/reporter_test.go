package coordinator

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

// memoryOf is what a server under test has in memory.
type memoryOf struct {
	mu      sync.Mutex
	chunks  map[Chunk]bool
	changes int64
	fails   bool // in the middle of a list
}

func (m *memoryOf) set(there bool, chunks ...Chunk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range chunks {
		if there {
			m.chunks[c] = true
		} else {
			delete(m.chunks, c)
		}
		m.changes++
	}
}

func (m *memoryOf) list(context.Context) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := 0
		for c := range m.chunks {
			if n++; m.fails && n > len(m.chunks)/2 {
				yield(Chunk{}, errors.New("the list ends in the middle"))
				return
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// bedOf is a coordinator that can be away, begin anew, and refuse.
type bedOf struct {
	t       *testing.T
	web     *httptest.Server
	memory  *memoryOf
	current atomic.Pointer[Server]
	refuse  atomic.Int64 // so many requests
	old     bool         // as that of LMCache 0.5.6
	options ReporterOptions
}

func newBedOf(t *testing.T) *bedOf {
	b := &bedOf{t: t, memory: &memoryOf{chunks: map[Chunk]bool{}}}
	b.begin()
	b.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.refuse.Add(-1) >= 0 {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		if b.old && strings.HasPrefix(r.URL.Path, "/config/") {
			http.NotFound(w, r)
			return
		}
		b.current.Load().Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(b.web.Close)
	b.options = ReporterOptions{
		URL: b.web.URL, Instance: "host-ringcache", HTTPPort: 9401, Chunks: b.memory.list,
		Changes:     func() int64 { b.memory.mu.Lock(); defer b.memory.mu.Unlock(); return b.memory.changes },
		ChunkTokens: func() int { return 512 },
		Interval:    time.Millisecond, Heartbeat: 2 * time.Millisecond,
	}
	return b
}

// begin makes the coordinator one that knows nothing.
func (b *bedOf) begin() {
	s, err := New(Options{Directory: directory.New(directory.Options{})})
	require.NoError(b.t, err)
	b.current.Store(s)
}

// run starts a reporter, and returns what ends it.
func (b *bedOf) run() (end func()) {
	r, err := NewReporter(b.options)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(end)
	return end
}

// known waits until the coordinator knows what is in memory, and nothing else.
func (b *bedOf) known() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		s := b.current.Load()
		s.mu.Lock()
		defer s.mu.Unlock()
		b.memory.mu.Lock()
		defer b.memory.mu.Unlock()
		if len(s.index.objects) != len(b.memory.chunks) {
			return false
		}
		for c := range b.memory.chunks {
			o := s.index.objects[nameOf(c.objectKey())]
			if o == nil || len(o.places) != 1 || o.places[0].Size != c.Size || o.places[0].Instance != b.options.Instance {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond)
}

func (c Chunk) objectKey() kv.ObjectKey {
	return kv.ObjectKey{
		Hash: []byte(c.Hash), Model: c.Space.Model, Rank: c.Space.Rank, Group: c.Space.Group, Salt: c.Space.Salt,
	}
}

func chunkOf(i int) Chunk {
	rank, _ := kv.NewRank(2, i%2, 2, i%2)
	return Chunk{
		Space: Space{Model: "org/model", Rank: rank, Group: uint32(i % 3), Salt: []string{"", "alice"}[i%2]},
		Hash:  "hash " + strconv.Itoa(i), Size: int64(i),
	}
}

// TestReporter: a coordinator knows what is in memory, whatever happens to either of them.
func TestReporter(t *testing.T) {
	b := newBedOf(t)
	var all []Chunk
	for i := range 2500 { // three batches
		all = append(all, chunkOf(i))
	}
	b.memory.set(true, all[:1000]...)
	end := b.run()
	b.known()
	require.Equal(t, 512, b.current.Load().chunk)
	b.memory.set(true, all[1000:]...)
	b.known()
	b.memory.set(false, all[:1700]...)
	b.memory.set(true, all[100])
	b.known()

	b.refuse.Store(8) // it is away
	b.memory.set(true, all[:500]...)
	b.known()
	b.begin() // it has lost all
	b.known()
	b.memory.mu.Lock()
	b.memory.fails = true
	b.memory.mu.Unlock()
	b.memory.set(true, all[500:1000]...)
	time.Sleep(20 * time.Millisecond) // some lists fail, which the rest does not depend on
	b.memory.mu.Lock()
	b.memory.fails = false
	b.memory.mu.Unlock()
	b.known()

	s := b.current.Load()
	require.Zero(t, s.Counts().StreamsWithGap)
	require.Equal(t, 1, s.Counts().Instances)
	end()
	require.Zero(t, s.Counts().Instances, "it has left")
	require.Zero(t, s.Counts().Objects)
}

// TestReporterAfterAnother: a reporter whose clock is behind that of the one before it is heard all the same.
func TestReporterAfterAnother(t *testing.T) {
	b := newBedOf(t)
	b.memory.set(true, chunkOf(1), chunkOf(2))
	r, err := NewReporter(b.options)
	require.NoError(t, err)
	r.incarnation += 100
	require.NoError(t, r.step(t.Context()))
	b.known()
	b.memory.set(false, chunkOf(1))
	b.run()
	b.known()
}

// TestReporterToAnOldCoordinator: that of LMCache 0.5.6 can't be told how long chunks are.
func TestReporterToAnOldCoordinator(t *testing.T) {
	b := newBedOf(t)
	b.old = true
	b.memory.set(true, chunkOf(1))
	b.run()
	b.known()
}

// TestReporterBadOptions: what can't work is refused at the start.
func TestReporterBadOptions(t *testing.T) {
	for _, o := range []ReporterOptions{
		{URL: "", Instance: "a"}, {URL: "h:1", Instance: "a"}, {URL: "ftp://h", Instance: "a"}, {URL: "http://", Instance: "a"},
		{URL: "http://h:1?x=1", Instance: "a"}, {URL: "http://u:p@h:1", Instance: "a"}, {URL: "http://h"}, {URL: "http://h", Instance: "a/b"}, {URL: "http://h", Instance: sharedHolder},
	} {
		_, err := NewReporter(o)
		require.ErrorIs(t, err, errInvalid, "%v", o)
	}
}
