package tier_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestRandomHosts holds stores of several hosts over one shared level to what docs/hosts.md promises, in random histories
// of what hosts do, of cables that are cut, of hosts that restart, and of a shared level that evicts:
//
//   - A hit has the bytes that were stored, whatever happened.
//   - A miss is at most NegativeTTL old: the shared level has said so to this host no longer ago than that before the call
//     began, or during the call.
//   - A host says that it can't ask the shared level only of calls that began while its cable was cut, or within the longest
//     pause between probes and one time limit after that.
//   - What was deleted is gone from the host that deleted it and from the shared level; it comes back only from a host that
//     had it, or that stores it.
//   - When all cables are in order, what any host has stored and nobody has deleted or evicted comes to the shared level,
//     and every host finds it.
//
// More of them: -rapid.checks 10000.
func TestRandomHosts(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rapid.SyncTest(r, func(r *rapid.T) { newHosts(r).run() })
	})
}

const (
	missTime  = time.Second     // Options.NegativeTTL
	callTime  = 2 * time.Second // Lower.Timeout
	probeTime = 5 * time.Second // the longest pause between probes
)

// hosts are the stores, and what the model knows of them.
type hosts struct {
	r      *rapid.T
	shared *tiertest.Map
	all    []*sharingHost
	// owed has what a host has stored, or is about to store, and neither was deleted nor evicted since.
	owed map[string]bool
}

// sharingHost is one host.
type sharingHost struct {
	*bed                        // whose level "remote" is behind the cable
	cut    string               // what the cable does, "" if it is in order
	mended time.Time            // when it was put in order last
	mu     sync.Mutex           // of denied
	denied map[string]time.Time // by name: when the shared level said that it does not have the object
	leases int
}

// denying notes what a level does not have.
type denying struct {
	tier.Level
	h *sharingHost
}

func (d denying) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	found := d.Level.Stat(ctx, keys)
	for i, f := range found {
		d.note(keys[i], f.Err)
	}
	return found
}

func (d denying) Get(ctx context.Context, gets []tier.Get) {
	d.Level.Get(ctx, gets)
	for _, g := range gets {
		d.note(g.Key, g.Err)
	}
}

func (d denying) note(k tier.Key, err error) {
	if errors.Is(err, tier.ErrNotFound) {
		d.h.mu.Lock()
		defer d.h.mu.Unlock()
		d.h.denied[k.Name] = time.Now()
	}
}

func newHosts(r *rapid.T) *hosts {
	w := &hosts{r: r, shared: tiertest.NewMap(tiertest.MapOptions{Name: "remote"}), owed: map[string]bool{}}
	for range rapid.IntRange(2, 3).Draw(r, "hosts") {
		h := &sharingHost{denied: map[string]time.Time{}}
		small := rapid.Bool().Draw(r, "small memory")
		memory := int64(1 << 20)
		if small {
			memory = 1200
		}
		h.bed = openBed(r, memory, func(o *tier.Options) {
			remote := tiertest.NewFault(denying{w.shared, h})
			o.Lower[1].Level, o.Lower[1].Timeout = remote, callTime
			if !rapid.Bool().Draw(r, "disk") {
				o.Lower = o.Lower[1:]
			}
			o.PromoteAfter = rapid.SampledFrom([]int{1, 2, -1}).Draw(r, "promote after")
			o.NegativeTTL = missTime
		})
		h.maps[1], h.remote = w.shared, h.options.Lower[len(h.options.Lower)-1].Level.(*tiertest.Fault)
		h.set("")
		w.all = append(w.all, h)
	}
	return w
}

func (w *hosts) run() {
	defer func() { // whatever failed, no goroutine is left
		for _, h := range w.all {
			h.remote.Do(nil)
			h.Close()
		}
	}()
	w.r.Repeat(map[string]func(*rapid.T){
		"put": w.put, "commit": w.commit, "get": w.getSome, "get at once": w.getAtOnce, "pin": w.pinSome, "pin rarely": w.pinRarely, "stat": w.stat,
		"delete": w.delete, "evict": w.evict, "cable": w.cable, "restart": w.restart, "sleep": w.sleep,
		"": func(r *rapid.T) {
			for _, h := range w.all {
				require.Empty(r, tier.Check(h.Store))
			}
		},
	})
	w.finish()
}

func (w *hosts) host(r *rapid.T) *sharingHost { return rapid.SampledFrom(w.all).Draw(r, "host") }

func (w *hosts) name(r *rapid.T) string { return rapid.SampledFrom(worldNames).Draw(r, "name") }

// set changes what a cable does with calls.
func (h *sharingHost) set(cut string) {
	if h.cut != "" && cut == "" || cut == "slow" {
		h.mended = time.Now()
	}
	h.cut = cut
	h.remote.Do(func(tiertest.Call) tiertest.Answer {
		switch cut {
		case "hangs":
			return tiertest.Answer{Hang: true}
		case "refuses":
			return tiertest.Answer{Err: fmt.Errorf("test: %w", tier.ErrUnavailable)}
		case "slow":
			late := make(chan struct{})
			time.AfterFunc(100*time.Millisecond, func() { close(late) })
			return tiertest.Answer{Wait: late}
		}
		return tiertest.Answer{}
	})
}

func (h *sharingHost) isCut() bool { return h.cut == "hangs" || h.cut == "refuses" }

// fits reports whether all that the host stores is sure to get to the shared level: a memory that is small loses what
// its backlog has no room for.
func (h *sharingHost) fits() bool { return h.memory.Usage().Capacity > 10_000 }

func (w *hosts) put(r *rapid.T) {
	h, name := w.host(r), w.name(r)
	o := worldObject(name)
	if err := put(h, name, o.Parent, o.Size); err == nil && h.fits() {
		w.owed[name] = true
	}
}

func (w *hosts) commit(r *rapid.T) {
	h, name := w.host(r), w.name(r)
	l := h.newLease()
	defer l.Release()
	if p := l.Reserve([]tier.Object{worldObject(name)})[0]; p.Err == nil {
		copy(p.Bytes, content(name, p.Object.Size))
		require.NoError(r, l.Commit(keys(name))[0])
		if h.fits() {
			w.owed[name] = true
		}
	}
}

func (h *sharingHost) newLease() *tier.StoreLease {
	h.leases++
	return h.lease(fmt.Sprint("lease ", h.leases))
}

// judge judges the end of a call that began at a time.
func (h *sharingHost) judge(r *rapid.T, name string, began time.Time, err error) {
	switch {
	case err == nil, errors.Is(err, tier.ErrFull), errors.Is(err, tier.ErrTooLarge):
	case errors.Is(err, tier.ErrUnavailable):
		require.True(r, h.isCut() || began.Sub(h.mended) <= probeTime+callTime, "the cable was mended %v before the call: %v", began.Sub(h.mended), err)
	case errors.Is(err, tier.ErrNotFound):
		h.mu.Lock()
		denied, ok := h.denied[name]
		h.mu.Unlock()
		require.True(r, ok && began.Sub(denied) <= missTime,
			"%s is a miss, and the shared level said so %v before the call, if at all (%v): %v", name, began.Sub(denied), ok, err)
	default:
		require.NoError(r, err)
	}
}

func (w *hosts) getSome(r *rapid.T) {
	h, name := w.host(r), w.name(r)
	began := time.Now()
	h.judge(r, name, began, h.get(name)) // which compares the bytes
}

// getAtOnce reads a batch from all hosts, several times at once.
func (w *hosts) getAtOnce(r *rapid.T) {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(worldNames), 1, 5, rapid.ID[string]).Draw(r, "names")
	type answer struct {
		h    *sharingHost
		gets []tier.Get
	}
	began, answers := time.Now(), make(chan answer)
	for i := range 3 * len(w.all) {
		go func() {
			a := answer{w.all[i/3], make([]tier.Get, len(names))}
			for i, name := range names {
				a.gets[i].Key = key(name)
			}
			a.h.Get(context.Background(), a.gets)
			answers <- a
		}()
	}
	for range 3 * len(w.all) {
		a := <-answers
		for i, g := range a.gets {
			if g.Err == nil {
				require.True(r, bytes.Equal(content(names[i], g.Object.Size), g.Bytes), "the bytes of %s", names[i])
			}
			a.h.judge(r, names[i], began, g.Err)
		}
	}
}

// pinSome asks until there is an answer.
func (w *hosts) pinSome(r *rapid.T) { w.pinWith(r, time.Millisecond) }

// pinRarely asks only now and then: its miss may be as old as the first time that it asked.
func (w *hosts) pinRarely(r *rapid.T) { w.pinWith(r, 9*time.Second) }

func (w *hosts) pinWith(r *rapid.T, pause time.Duration) {
	h, name := w.host(r), w.name(r)
	l := h.newLease()
	defer l.Release()
	for began, n := time.Now(), 0; ; n++ {
		err := h.errs(l.Pin(keys(name)), name)[0]
		if !isPending(err) {
			h.judge(r, name, began, err)
			return
		}
		require.Less(r, n, 60_000, "%s is pending for ever", name)
		time.Sleep(pause)
	}
}

func (w *hosts) stat(r *rapid.T) {
	h, name := w.host(r), w.name(r)
	began := time.Now()
	found := h.Stat(r.Context(), keys(name))[0]
	if isPending(found.Err) {
		return // it is being fetched
	}
	h.judge(r, name, began, found.Err)
}

func (w *hosts) delete(r *rapid.T) {
	h, name := w.host(r), w.name(r)
	err := h.Delete(r.Context(), keys(name))[0]
	delete(w.owed, name) // even after an error some levels do not have it any more
	if err == nil {
		_, others := w.holders(name, h)
		own := h.memory.Stat(r.Context(), keys(name))[0].Err == nil || h.maps[0].Stat(r.Context(), keys(name))[0].Err == nil
		require.False(r, own, "%s was deleted", name)
		require.True(r, others || w.shared.Stat(r.Context(), keys(name))[0].Err != nil, "%s was deleted, and nobody else has it", name)
	}
}

// holders reports whether a host has an object in a level of its own, and whether one of the others does.
func (w *hosts) holders(name string, h *sharingHost) (own, others bool) {
	for _, x := range w.all {
		has := x.memory.Stat(context.Background(), keys(name))[0].Err == nil || x.maps[0].Stat(context.Background(), keys(name))[0].Err == nil
		own, others = own || has && x == h, others || has && x != h
	}
	return own, others
}

// evict lets the shared level evict an object, as a server with a limit does.
func (w *hosts) evict(r *rapid.T) {
	name := w.name(r)
	if w.shared.Delete(r.Context(), keys(name))[0] == nil {
		delete(w.owed, name)
	}
}

func (w *hosts) cable(r *rapid.T) {
	w.host(r).set(rapid.SampledFrom([]string{"", "", "slow", "hangs", "refuses"}).Draw(r, "cable"))
}

// restart kills a daemon, closes it in order, or has the whole machine begin anew: its memory is lost then.
func (w *hosts) restart(r *rapid.T) {
	h := w.host(r)
	before := h.Store
	switch rapid.SampledFrom([]string{"close", "kill", "machine"}).Draw(r, "end") {
	case "kill":
		h.memory = h.memory.Reopen()
		h.options.Memory = h.memory
	case "machine":
		for name := range w.owed { // what was pending went with the memory
			if w.shared.Stat(r.Context(), keys(name))[0].Err != nil {
				delete(w.owed, name)
			}
		}
		h.memory = tiertest.NewMap(tiertest.MapOptions{Name: "memory", Capacity: h.memory.Usage().Capacity})
		h.options.Memory = h.memory
	default:
	}
	require.NoError(r, before.Close())
	// What waited without a pin, as what was stored again, is not known to the next store.
	for name := range w.owed {
		if w.shared.Stat(r.Context(), keys(name))[0].Err != nil {
			delete(w.owed, name)
		}
	}
	h.open()
}

func (w *hosts) sleep(r *rapid.T) {
	time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 400, 900, 1100, 8000}).Draw(r, "ms")) * time.Millisecond)
}

// finish puts all cables in order, and compares what everybody has then.
func (w *hosts) finish() {
	for _, h := range w.all {
		h.set("")
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, h := range w.all {
		if _, err := h.Drain(w.r.Context()); !isMissed(err) {
			require.NoError(w.r, err)
		}
	}
	time.Sleep(missTime)
	for _, name := range worldNames {
		there := w.shared.Stat(context.Background(), keys(name))[0].Err == nil
		require.True(w.r, there || !w.owed[name], "%s was stored, and is not in the shared level", name)
		for i, h := range w.all {
			if there {
				require.NoError(w.r, h.get(name), "host %d: %s", i, name)
			}
		}
	}
	for _, h := range w.all {
		require.Empty(w.r, tier.Check(h.Store))
		for _, l := range slices.DeleteFunc(h.memory.Leases(), func(s tier.LeaseState) bool { return s.Owner != "test" }) {
			require.Empty(w.r, l.Pinned)
		}
		h.end()
	}
}
