package shared

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/kv/directory"
)

var (
	modelSteps = flag.Int("shared.steps", 6_000, "TestModel: steps")
	modelSeed  = flag.Uint64("shared.seed", 1, "TestModel: the first seed")
)

const modelKeys = 24

var modelPlaces = []string{"LocalCPUBackend", "LocalDiskBackend"}

// modelWorker is a worker, and the truth of what it has.
type modelWorker struct {
	id     directory.ID
	home   int // the directory to which it reports
	begun  int
	number [2]int64
	chunks [2]map[directory.Key]bool
	syncs  int
}

// host is a directory with what it shares.
type host struct {
	d   *directory.Directory
	s   *State
	cut bool // it does not reach Redis
}

// model is several directories, one Redis, and workers that report to any of them.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	server  *redistest.Server
	hosts   []*host
	workers []*modelWorker
	options Options
	now     time.Time
}

func newModel(t *testing.T, seed uint64, hosts, workers int) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 1)), server: redistest.Start(t)}
	m.options = Options{URL: "redis://" + m.server.Addr() + "/0", Face: "test", Logger: slog.New(slog.DiscardHandler)}
	for i := range hosts {
		m.hosts = append(m.hosts, nil)
		m.start(i)
	}
	for i := range workers {
		w := &modelWorker{id: directory.ID{Instance: fmt.Sprint("engine-", i/2), Worker: int64(i % 2)}}
		w.home = m.rng.IntN(hosts)
		m.workers = append(m.workers, w)
		m.register(w)
	}
	t.Cleanup(func() {
		for _, h := range m.hosts {
			require.NoError(t, h.s.level.Close())
		}
	})
	return m
}

// start begins a directory anew: what it had in memory is lost.
func (m *model) start(i int) {
	if h := m.hosts[i]; h != nil {
		require.NoError(m.t, h.s.level.Close())
	}
	o := m.options
	o.Directory = directory.New(directory.Options{
		Shared: true, SyncTimeout: 30 * time.Second, Now: func() time.Time { return m.now },
	})
	s, err := Open(m.t.Context(), o)
	require.NoError(m.t, err)
	m.hosts[i] = &host{d: o.Directory, s: s}
}

func (m *model) round(i int) error {
	if m.hosts[i].cut {
		return nil
	}
	if m.rng.IntN(4) == 0 {
		m.hosts[i].s.beaten = time.Time{}
	}
	return m.hosts[i].s.try(m.t.Context(), m.hosts[i].s.round)
}

func (m *model) register(w *modelWorker) {
	w.begun++
	w.chunks = [2]map[directory.Key]bool{{}, {}}
	// Numbers of a worker that has begun anew are others than before: a worker whose beginning is lost with its
	// directory, and that has made as many reports as the one before it, can't be told from that.
	w.number = [2]int64{1000 * int64(w.begun), 1000 * int64(w.begun)}
	require.NoError(m.t, m.hosts[w.home].d.Register(directory.Worker{ID: w.id, IP: "10.0.0.1", PeerURL: "here"}))
}

func (m *model) report(w *modelWorker, at int, lost bool) {
	k := directory.NumberKey(m.rng.Uint64N(modelKeys))
	if at == 1 {
		k = directory.KeyOf("model", k[:])
	}
	evicted := w.chunks[at][k]
	if evicted {
		delete(w.chunks[at], k)
	} else {
		w.chunks[at][k] = true
	}
	if !lost {
		// It is lost, too, where the worker is not known.
		_ = m.hosts[w.home].d.Apply(w.id, modelPlaces[at], []directory.Report{
			{Evicted: evicted, Key: k, Number: w.number[at]},
		})
	}
	w.number[at]++
}

// beat sends a heartbeat, and what the answer wants. With cut it ends in the midst.
func (m *model) beat(w *modelWorker, cut bool) (synced bool) {
	d := m.hosts[w.home].d
	reason, err := d.Heartbeat(directory.Worker{ID: w.id, IP: "10.0.0.1", PeerURL: "here"})
	require.NoError(m.t, err)
	if reason == "" {
		return false
	}
	for at, place := range modelPlaces {
		w.syncs++
		sync := fmt.Sprint("sync", w.syncs)
		var keys []directory.Key
		for k := range w.chunks[at] {
			keys = append(keys, k)
		}
		batches := slices.Collect(slices.Chunk(keys, 5))
		if err := d.StartSync(w.id, place, sync, len(batches)); err != nil {
			return false // one that ended in its midst is under way still
		}
		for i, b := range batches {
			if cut && i == 1 {
				return true
			}
			require.NoError(m.t, d.SyncBatch(w.id, place, sync, i, b))
		}
		require.NoError(m.t, d.EndSync(w.id, sync))
	}
	for at := range modelPlaces {
		m.report(w, at, false) // what is lost between the two is not noticed
	}
	return true
}

// up waits until all directories reach Redis.
func (m *model) up() {
	for i := range m.hosts {
		require.Eventually(m.t, func() bool { return m.round(i) == nil }, 2*time.Minute, 10*time.Millisecond)
	}
}

// settle lets nothing be lost any more, and compares all directories with the truth, and one that begins.
func (m *model) settle() {
	for _, h := range m.hosts {
		h.cut = false
		h.s.beaten = time.Time{}
	}
	m.up()
	m.now = m.now.Add(time.Minute) // synchronisations that were broken off have failed
	for _, w := range m.workers {
		for try := 0; ; try++ {
			require.Less(m.t, try, 10, "worker %v never knows everything", w.id)
			for range 3 {
				m.up()
			}
			m.report(w, 0, false) // so that what was lost is noticed
			m.report(w, 1, false)
			if !m.beat(w, false) {
				break
			}
		}
	}
	for range 3 {
		m.up()
	}
	for _, h := range m.hosts {
		m.same(h.d)
	}
	fresh := &model{t: m.t, now: m.now, hosts: []*host{nil}, options: m.options}
	fresh.start(0)
	m.same(fresh.hosts[0].d)
	require.NoError(m.t, fresh.hosts[0].s.level.Close())
}

func (m *model) same(d *directory.Directory) {
	entries := 0
	for _, w := range m.workers {
		info, known := d.Worker(w.id)
		require.True(m.t, known, "%v", w.id)
		require.Equal(m.t, "here", info.PeerURL)
		for at, place := range modelPlaces {
			for n := range uint64(modelKeys) {
				k := directory.NumberKey(n)
				if at == 1 {
					k = directory.KeyOf("model", k[:])
				}
				require.Equal(m.t, w.chunks[at][k], d.Holds(w.id, place, k), "%v %s %d", w.id, place, n)
				for _, p := range d.Find([]directory.Key{k}, directory.Query{}) {
					require.False(m.t, p.Stale, "%v %s %d", w.id, place, n)
				}
			}
			entries += len(w.chunks[at])
		}
	}
	require.Equal(m.t, entries, d.Counts().Entries)
	require.Equal(m.t, len(m.workers), d.Counts().Workers)
	require.NoError(m.t, d.Validate())
}

// TestModel: whatever happens to directories, to Redis, to reports and to the way between them, once nothing happens any
// more all directories say what is true, and so does one that begins.
func TestModel(t *testing.T) {
	m := newModel(t, *modelSeed, 3, 6)
	for step := range *modelSteps {
		w := m.workers[m.rng.IntN(len(m.workers))]
		i := m.rng.IntN(len(m.hosts))
		switch n := m.rng.IntN(1000); {
		case n < 550:
			m.report(w, m.rng.IntN(2), false)
		case n < 560:
			m.report(w, m.rng.IntN(2), true)
		case n < 620:
			m.beat(w, n == 619)
		case n < 650:
			w.home = i
		case n < 660:
			m.register(w)
		case n < 663:
			m.hosts[w.home].d.Deregister(w.id)
		case n < 670:
			m.start(i)
		case n < 675:
			m.hosts[i].cut = !m.hosts[i].cut
		case n < 677:
			m.server.Do("xtrim", m.hosts[0].s.prefix+"log", "maxlen", "0")
		case n == 677:
			m.server.Do("flushall")
		case n == 678 && step%4 == 0:
			m.server.Restart()
		default:
			_ = m.round(i) // Redis may be away
		}
		if step%1000 == 999 {
			m.settle()
		}
	}
	for i, h := range m.hosts {
		t.Logf("directory %d: %+v", i, h.s.Counts())
	}
}
