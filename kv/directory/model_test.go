package directory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The world of the model: workers with chunks, and messages that are on their way, or lost.
type (
	world struct {
		t       *rapid.T
		d       *Directory
		now     time.Time
		workers []*realWorker
		known   map[ID]map[string]map[Key]bool // what the directory has to say: the plain map
		evicted map[ID]map[Key]bool            // during the full synchronisation of a worker
		syncing map[ID]string                  // its location
	}
	realWorker struct {
		ID
		chunks map[string]map[Key]bool
		number map[string]int64
		sent   []message // not delivered, in order
		sync   *realSync
		syncs  int
		missed map[string]bool // whether a report was lost that the directory can't miss
	}
	realSync struct {
		id      string
		at      string
		batches [][]Key
	}
	message struct {
		at     string
		report Report
		batch  int // -1: a report, -2: the end
		sync   *realSync
	}
)

var places = []string{"LocalCPUBackend", "LocalDiskBackend"}

func (w *world) begin(r *realWorker) {
	r.chunks, r.number = map[string]map[Key]bool{}, map[string]int64{}
	r.sent, r.sync, r.missed = nil, nil, map[string]bool{}
	for _, p := range places {
		r.chunks[p] = map[Key]bool{}
	}
	require.NoError(w.t, w.d.Register(Worker{ID: r.ID}))
	w.forget(r.ID)
	w.known[r.ID] = map[string]map[Key]bool{}
}

func (w *world) forget(id ID) {
	delete(w.known, id)
	delete(w.evicted, id)
	delete(w.syncing, id)
}

func (r *realWorker) report(at string, evict bool, k Key) {
	if evict {
		delete(r.chunks[at], k)
	} else {
		r.chunks[at][k] = true
	}
	r.sent = append(r.sent, message{at: at, batch: -1, report: Report{Evicted: evict, Key: k, Number: r.number[at]}})
	r.number[at]++
}

// deliver gives the directory the next message of a worker, and tells the model of it.
func (w *world) deliver(r *realWorker) {
	m := r.sent[0]
	r.sent = r.sent[1:]
	known := w.known[r.ID]
	switch m.batch {
	case -1:
		err := w.d.Apply(r.ID, m.at, []Report{m.report})
		if known == nil {
			require.ErrorIs(w.t, err, ErrUnknown)
			return
		}
		require.NoError(w.t, err)
		w.set(r.ID, m.at, m.report.Key, !m.report.Evicted)
		if w.syncing[r.ID] == m.at {
			if m.report.Evicted {
				w.evicted[r.ID][m.report.Key] = true
			} else {
				delete(w.evicted[r.ID], m.report.Key)
			}
		}
	case -2:
		_ = w.d.EndSync(r.ID, m.sync.id)
		if s := w.d.SyncStatus(r.ID, m.sync.id); s.Complete {
			delete(w.syncing, r.ID)
			delete(w.evicted, r.ID)
		}
	default:
		if err := w.d.SyncBatch(r.ID, m.at, m.sync.id, m.batch, m.sync.batches[m.batch]); err == nil {
			for _, k := range m.sync.batches[m.batch] {
				if !w.evicted[r.ID][k] {
					w.set(r.ID, m.at, k, true)
				}
			}
		}
	}
}

func (w *world) set(id ID, at string, k Key, here bool) {
	if w.known[id][at] == nil {
		w.known[id][at] = map[Key]bool{}
	}
	if here {
		w.known[id][at][k] = true
	} else {
		delete(w.known[id][at], k)
	}
}

// startSync is what a worker does that was asked for all chunks of a location.
func (w *world) startSync(r *realWorker, at string) {
	r.syncs++
	s := &realSync{id: fmt.Sprintf("%s_%d_%d", r.Instance, r.ID.Worker, r.syncs), at: at, batches: [][]Key{nil}}
	inOrder := func(a, b Key) int { return slices.Compare(a[:], b[:]) }
	for _, k := range slices.SortedFunc(maps.Keys(r.chunks[at]), inOrder) {
		if n := len(s.batches) - 1; len(s.batches[n]) < 2 {
			s.batches[n] = append(s.batches[n], k)
		} else {
			s.batches = append(s.batches, []Key{k})
		}
	}
	err := w.d.StartSync(r.ID, at, s.id, len(s.batches))
	if w.known[r.ID] == nil {
		require.ErrorIs(w.t, err, ErrUnknown)
		return
	}
	if errors.Is(err, ErrSyncing) {
		return // the last one has lost its end: it fails in time
	}
	require.NoError(w.t, err)
	delete(r.missed, at)
	w.known[r.ID][at] = map[Key]bool{}
	w.syncing[r.ID], w.evicted[r.ID] = at, map[Key]bool{}
	r.sync = s
	for i := range s.batches {
		r.sent = append(r.sent, message{at: at, batch: i, sync: s})
	}
	r.sent = append(r.sent, message{at: at, batch: -2, sync: s})
}

// lose drops the next message of a worker. One in front of the first number that the directory sees of a worker that it
// did not know can't be missed.
func (w *world) lose(r *realWorker) {
	m := r.sent[0]
	r.sent = r.sent[1:]
	if known := w.d.worker(r.ID); known != nil && !known.fresh && m.batch == -1 {
		if l, _ := w.d.location(known, m.at, false); l != nil && !l.numbered {
			r.missed[m.at] = true
		}
	}
}

// poll asks how far the synchronisation is, and sends what is missing again.
func (w *world) poll(r *realWorker) {
	s := w.d.SyncStatus(r.ID, r.sync.id)
	for _, i := range s.Missing {
		r.sent = append(r.sent, message{at: r.sync.at, batch: i, sync: r.sync})
	}
	if s.Complete || s.Release {
		r.sync = nil
		return
	}
	r.sent = append(r.sent, message{at: r.sync.at, batch: -2, sync: r.sync})
}

func (w *world) heartbeat(r *realWorker) string {
	reason, err := w.d.Heartbeat(Worker{ID: r.ID})
	require.NoError(w.t, err)
	if w.known[r.ID] == nil {
		w.known[r.ID] = map[string]map[Key]bool{}
		require.NotEmpty(w.t, reason)
	}
	return reason
}

// check compares the directory with the plain map.
func (w *world) check() {
	entries := 0
	for _, r := range w.workers {
		for _, p := range places {
			for n := range uint64(8) {
				k := NumberKey(n)
				require.Equal(w.t, w.known[r.ID][p][k], w.d.Holds(r.ID, p, k), "%v %s %d", r.ID, p, n)
			}
			entries += len(w.known[r.ID][p])
		}
	}
	require.Equal(w.t, entries, w.d.Counts().Entries)
}

// prefixes is Find, in the plain map.
func (w *world) prefixes(chain []Key) map[string]int {
	found := map[string]int{}
	for _, r := range w.workers {
		if w.known[r.ID] == nil {
			continue
		}
		n := slices.IndexFunc(chain, func(k Key) bool {
			return !w.known[r.ID][places[0]][k] && !w.known[r.ID][places[1]][k]
		})
		if n < 0 {
			n = len(chain)
		}
		if before, known := found[r.Instance]; known {
			n = min(n, before)
		}
		found[r.Instance] = n
	}
	maps.DeleteFunc(found, func(_ string, n int) bool { return n == 0 })
	return found
}

// TestModel: what the directory says is what it was told, whatever is lost, restarts or goes; and once nothing is lost
// any more, heartbeats and full synchronisations make it the truth.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: time.Unix(1000, 0), known: map[ID]map[string]map[Key]bool{},
			evicted: map[ID]map[Key]bool{}, syncing: map[ID]string{}}
		options := Options{Timeout: time.Minute, SyncTimeout: 25 * time.Second, Now: func() time.Time { return w.now }}
		w.d = New(options)
		for i := range 5 {
			r := &realWorker{ID: ID{string(rune('a' + i/2)), int64(i % 2)}}
			w.workers = append(w.workers, r)
			w.begin(r)
		}
		one := rapid.SampledFrom(w.workers)
		key := rapid.Custom(func(t *rapid.T) Key { return NumberKey(rapid.Uint64Range(0, 7).Draw(t, "key")) })
		t.Repeat(map[string]func(*rapid.T){
			"report": func(t *rapid.T) {
				one.Draw(t, "worker").report(rapid.SampledFrom(places).Draw(t, "at"), rapid.Bool().Draw(t, "evict"),
					key.Draw(t, "key"))
			},
			"deliver": func(t *rapid.T) {
				r := one.Draw(t, "worker")
				for n := rapid.IntRange(1, 4).Draw(t, "messages"); n > 0 && len(r.sent) > 0; n-- {
					w.deliver(r)
				}
			},
			"lose": func(t *rapid.T) {
				if r := one.Draw(t, "worker"); len(r.sent) > 0 {
					w.lose(r)
				}
			},
			"heartbeat": func(t *rapid.T) {
				r := one.Draw(t, "worker")
				if reason := w.heartbeat(r); reason != "" && r.sync == nil {
					w.startSync(r, rapid.SampledFrom(places).Draw(t, "at"))
				}
			},
			"poll": func(t *rapid.T) {
				if r := one.Draw(t, "worker"); r.sync != nil {
					w.poll(r)
				}
			},
			"worker restarts": func(t *rapid.T) { w.begin(one.Draw(t, "worker")) },
			"worker leaves": func(t *rapid.T) {
				r := one.Draw(t, "worker")
				require.Equal(t, w.known[r.ID] != nil, w.d.Deregister(r.ID))
				w.forget(r.ID)
			},
			"directory restarts": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "seldom") > 0 {
					return
				}
				w.d = New(options)
				for _, r := range w.workers {
					w.forget(r.ID)
				}
			},
			"time": func(t *rapid.T) {
				w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 40 * time.Second}).Draw(t, "passes"))
				w.d.Expire()
				for _, r := range w.workers {
					if _, known := w.d.Worker(r.ID); !known {
						w.forget(r.ID)
					}
				}
			},
			"find": func(t *rapid.T) {
				chain := rapid.SliceOfN(key, 1, 6).Draw(t, "chain")
				found := map[string]int{}
				for _, p := range w.d.Find(chain, Query{}) {
					found[p.Instance] = p.Chunks
				}
				want := w.prefixes(chain)
				require.Equal(t, want, found)
				most := rapid.IntRange(1, 2).Draw(t, "most")
				some := w.d.Find(chain, Query{Most: most, Exclude: "a"})
				delete(want, "a")
				longest := slices.Sorted(maps.Values(want))
				slices.Reverse(longest)
				require.Len(t, some, min(most, len(want)))
				for i, p := range some {
					require.Equal(t, longest[i], p.Chunks)
					require.Equal(t, want[p.Instance], p.Chunks)
				}
			},
			"": func(*rapid.T) { w.check() },
		})
		w.settle()
	})
}

// settle loses nothing any more.
func (w *world) settle() {
	for _, r := range w.workers {
		for _, p := range places {
			r.report(p, false, NumberKey(0)) // so that a loss is noticed
		}
		for len(r.sent) > 0 {
			w.deliver(r)
		}
		r.sync = nil
	}
	w.now = w.now.Add(26 * time.Second) // what has lost its end has failed
	w.d.Expire()
	for _, r := range w.workers {
		if _, known := w.d.Worker(r.ID); !known {
			w.forget(r.ID)
		}
	}
	for _, r := range w.workers {
		reason := w.heartbeat(r)
		stale := map[string]bool{}
		for _, l := range w.d.worker(r.ID).locations {
			stale[l.name] = l.gap
			require.True(w.t, reason != "" || l.worker.fresh || l.worker.sync != nil, "it was never asked")
		}
		for _, p := range places {
			if l, _ := w.d.location(w.d.worker(r.ID), p, false); l != nil && !stale[p] && !r.missed[p] {
				w.same(r, p) // what is not known to be stale is true
				continue
			}
			w.startSync(r, p)
			for r.sync != nil {
				for len(r.sent) > 0 {
					w.deliver(r)
				}
				w.poll(r)
			}
			w.same(r, p)
		}
		require.Empty(w.t, w.heartbeat(r))
	}
	for _, p := range w.d.Find([]Key{NumberKey(0)}, Query{}) {
		require.False(w.t, p.Stale)
	}
	w.check()
	validate(w.t, w.d)
}

// same compares a location with what the directory says.
func (w *world) same(r *realWorker, at string) {
	for n := range uint64(8) {
		require.Equal(w.t, r.chunks[at][NumberKey(n)], w.d.Holds(r.ID, at, NumberKey(n)), "%v %s %d", r.ID, at, n)
	}
}

type failer interface {
	require.TestingT
}

// validate checks that the parts of a directory agree.
func validate(t failer, d *Directory) {
	d.mu.Lock()
	defer d.mu.Unlock()
	pairs, live := 0, map[*location]int{}
	for i := range d.table.parts {
		p := &d.table.parts[i]
		used := map[uint32]bool{}
		count := func(h uint32) {
			pairs++
			if l := d.locations[h]; l != nil {
				live[l]++
			} else {
				require.True(t, slices.Contains(d.ended, h) || slices.Contains(d.sweeping, h),
					"holder %d has ended, and is not swept", h)
			}
		}
		for k, value := range p.chunks {
			require.Same(t, p, d.table.of(k))
			if value&isList == 0 {
				count(value)
				continue
			}
			list := p.lists[value&^isList]
			require.False(t, used[value])
			used[value] = true
			require.Greater(t, len(list), 1)
			require.True(t, slices.IsSorted(list) && len(slices.Compact(slices.Clone(list))) == len(list))
			for _, h := range list {
				count(h)
			}
		}
		require.Len(t, p.lists, len(used)+len(p.free))
	}
	require.Equal(t, pairs, d.table.pairs)
	entries, workers, evicted := 0, 0, 0
	for name, i := range d.instances {
		require.Equal(t, name, i.name)
		require.NotEmpty(t, i.workers)
		workers += len(i.workers)
		for _, w := range i.workers {
			require.Same(t, i, w.instance)
			if w.sync != nil {
				evicted += len(w.sync.evicted)
			}
			for _, l := range w.locations {
				require.Same(t, l, d.locations[l.holder])
				require.Same(t, w, l.worker)
				require.Equal(t, live[l], l.chunks)
				entries += l.chunks
			}
		}
	}
	require.Equal(t, workers, d.workers)
	require.Equal(t, entries, d.counts.Entries)
	require.Equal(t, evicted, d.evicted)
	for _, h := range d.free {
		require.Nil(t, d.locations[h])
		require.NotContains(t, d.ended, h)
		require.NotContains(t, d.sweeping, h)
	}
}
