package tier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// TestRandomHistories: whatever fails, no read returns other bytes, none fails that a level could serve, and
// nothing stays held or counted. More of them: -rapid.checks 10000.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rapid.SyncTest(r, func(r *rapid.T) { newWorld(r).run() })
	})
}

// world is a store in a random history.
type world struct {
	*bed
	r       *rapid.T
	leases  map[string]*tier.StoreLease
	fault   [2]string            // what each lower level does with calls
	foreign map[string]time.Time // when an object was put into a level by somebody else, or was looked up beside it
	damaged map[string]bool
	cancels []context.CancelFunc
}

// The objects of histories: chains of four, and some without parents. Size and tenant follow from the name.
var worldNames = []string{"a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "c0", "d0", "e0", "f0"}

func worldObject(name string) tier.Object {
	o := object(name, "", int64(100*(int(name[0])-'a')+int(name[1])-'0'))
	if n := name[1]; n > '0' {
		o.Parent = string([]byte{name[0], n - 1})
	}
	if name[0] >= 'e' {
		o.Tenant = "tenant"
	}
	return o
}

func newWorld(r *rapid.T) *world {
	w := &world{r: r, leases: map[string]*tier.StoreLease{}, foreign: map[string]time.Time{}, damaged: map[string]bool{}}
	w.bed = openBed(r, int64(rapid.SampledFrom([]int{0, 600, 1200}).Draw(r, "memory")), func(o *tier.Options) {
		for i := range o.Lower {
			o.Lower[i].Write = rapid.SampledFrom([]tier.Write{tier.Back, tier.Through, tier.Around}).Draw(r, "write")
			o.Lower[i].PromoteAfter = rapid.SampledFrom([]int{1, 2, -1}).Draw(r, "level's promote after")
			o.Lower[i].Timeout = 2 * time.Second
		}
		o.PromoteAfter = rapid.SampledFrom([]int{1, 2, -1}).Draw(r, "promote after")
		o.MaxCalls = rapid.SampledFrom([]int{2, 8}).Draw(r, "calls")
		o.MaxBytesInFlight = int64(rapid.SampledFrom([]int{1, 1000, 1 << 20}).Draw(r, "in flight"))
		o.MaxBacklog = int64(rapid.SampledFrom([]int{300, 1 << 20}).Draw(r, "backlog"))
		o.MaxFetches = rapid.SampledFrom([]int{3, 1 << 16}).Draw(r, "pending")
		o.Quotas = map[string]int64{"tenant": 450}
	})
	return w
}

func (w *world) run() {
	defer func() { // whatever failed, no goroutine is left
		for _, cancel := range w.cancels {
			cancel()
		}
		w.disk.Do(nil)
		w.remote.Do(nil)
		w.Close()
	}()
	w.r.Repeat(map[string]func(*rapid.T){
		"put": w.put, "commit": w.commit, "reserve": w.reserve, "pin": w.pinSome, "prefix": w.pinPrefix, "unpin": w.unpin, "release": w.release,
		"get": w.getSome, "get at once": w.getAtOnce, "prefetch": w.prefetch, "cancel": w.cancel, "delete": w.delete,
		"fault": w.setFault, "damage": w.damage, "foreign": w.putForeign, "restart": w.restart, "sleep": w.sleep, "drain": w.drain,
		"until": w.pinUntil,
		"":      func(r *rapid.T) { require.Empty(r, tier.Check(w.Store)) },
	})
	w.finish()
}

func (w *world) names(r *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom(worldNames), 1, 5).Draw(r, "names")
}

func (w *world) anyLease(r *rapid.T) *tier.StoreLease {
	return w.open1(rapid.SampledFrom([]string{"l", "m", "n"}).Draw(r, "lease"))
}

func (w *world) open1(id string) *tier.StoreLease {
	if w.leases[id] == nil || errors.Is(w.leases[id].SetUntil(time.Time{}), tier.ErrEnded) {
		w.leases[id] = w.lease(id)
	}
	return w.leases[id]
}

func (w *world) put(r *rapid.T) {
	var puts []tier.Put
	for _, name := range w.names(r) {
		o := worldObject(name)
		puts = append(puts, tier.Put{Object: o, Bytes: content(name, o.Size)})
	}
	w.Put(r.Context(), puts)
	for _, p := range puts {
		if p.Err == nil {
			delete(w.foreign, p.Object.Name)
		}
	}
}

func (w *world) reserve(r *rapid.T) {
	l := w.anyLease(r)
	for i, p := range l.Reserve(objects(w.names(r))) {
		_ = i
		if p.Err == nil {
			copy(p.Bytes, content(p.Object.Name, p.Object.Size))
		}
	}
}

func objects(names []string) []tier.Object {
	out := make([]tier.Object, len(names))
	for i, name := range names {
		out[i] = worldObject(name)
	}
	return out
}

func (w *world) commit(r *rapid.T) {
	l := w.anyLease(r)
	reserved := l.State().Reserved
	if rapid.Bool().Draw(r, "abort") {
		for _, err := range l.Abort(reserved) {
			require.NoError(r, err)
		}
		return
	}
	for i, err := range l.Commit(reserved) {
		require.NoError(r, err)
		delete(w.foreign, reserved[i].Name)
		delete(w.damaged, "memory "+reserved[i].Name)
	}
}

func (w *world) pinSome(r *rapid.T) {
	names := w.names(r)
	l := w.anyLease(r)
	for i, err := range w.errs(l.Pin(keys(names...)), names...) {
		w.mayFail(r, names[i], err)
	}
}

func (w *world) pinPrefix(r *rapid.T) {
	names := w.names(r)
	placed := w.anyLease(r).PinPrefix(keys(names...))
	for i, err := range w.errs(placed, names...) {
		w.mayFail(r, names[i], err)
		if err != nil && !isPending(err) {
			require.Equal(r, i, len(placed)-1, "the answer ends with the first miss")
		}
	}
}

// mayFail checks that an error is one that a store answers with.
func (w *world) mayFail(r *rapid.T, name string, err error) {
	for _, known := range []error{tier.ErrNotFound, tier.ErrPending, tier.ErrFull, tier.ErrTooLarge} {
		if errors.Is(err, known) {
			return
		}
	}
	require.NoError(r, err, name)
}

// pinUntil asks until there is an answer: it comes, unless a client has reserved the object.
func (w *world) pinUntil(r *rapid.T) {
	name := rapid.SampledFrom(worldNames).Draw(r, "name")
	l := w.anyLease(r)
	pause := time.Duration(rapid.SampledFrom([]int{1, 3000}).Draw(r, "pause")) * time.Millisecond
	for range 60_000 {
		w.foreign[name] = time.Now()
		err := w.errs(l.Pin(keys(name)), name)[0]
		if !isPending(err) {
			return
		}
		time.Sleep(pause)
		if slices.ContainsFunc(w.memory.Leases(), func(s tier.LeaseState) bool {
			return s.Owner == "test" && slices.Contains(s.Reserved, key(name))
		}) {
			return
		}
	}
	r.Fatalf("%s is pending for ever", name)
}

func (w *world) unpin(r *rapid.T) { w.anyLease(r).Unpin(keys(w.names(r)...)) }

func (w *world) release(r *rapid.T) { w.anyLease(r).Release() }

// due reports whether a read of an object has to succeed: a level has it that works, and nothing runs that
// could take it away.
func (w *world) due(name string) bool {
	synctest.Wait()
	if since, ok := w.foreign[name]; ok && time.Since(since) <= time.Second {
		return false // it may be remembered as a miss
	}
	state := w.State()
	has := func(l *tiertest.Map) bool {
		return !w.damaged[l.Name()+" "+name] && l.Stat(context.Background(), keys(name))[0].Err == nil
	}
	for i, l := range w.maps {
		if has(l) && w.fault[i] == "" && !state.Levels[1+i].Away {
			return true
		}
	}
	return has(w.memory) && state.Fetches == 0
}

func (w *world) getSome(r *rapid.T) {
	name := rapid.SampledFrom(worldNames).Draw(r, "name")
	due := w.due(name)
	before := w.has(name)
	err := w.get(name)
	if due {
		require.NoError(r, err, "%s was in %s; faults %q", name, before, w.fault)
	}
	w.mayFail(r, name, err)
	if err != nil {
		w.foreign[name] = time.Now() // from now on, as long as a miss is remembered
	}
}

// getAtOnce reads a batch from several goroutines.
func (w *world) getAtOnce(r *rapid.T) {
	names := w.names(r)
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(rapid.SampledFrom([]int{1, 3000, 60000}).Draw(r, "patience"))*time.Millisecond)
	defer cancel()
	done := make(chan string)
	for range 3 {
		go func() {
			gets := make([]tier.Get, len(names))
			for i, name := range names {
				gets[i].Key = key(name)
			}
			w.Get(ctx, gets)
			wrong := ""
			for i, g := range gets {
				if g.Err == nil && string(g.Bytes) != string(content(names[i], worldObject(names[i]).Size)) {
					wrong = names[i]
				}
			}
			done <- wrong
		}()
	}
	for range 3 {
		require.Empty(r, <-done, "other bytes")
	}
	for _, name := range names {
		w.foreign[name] = time.Now()
	}
}

func (w *world) prefetch(r *rapid.T) {
	ctx, cancel := context.WithCancel(context.Background())
	w.cancels = append(w.cancels, cancel)
	names := w.names(r)
	for i, err := range w.Prefetch(ctx, keys(names...), rapid.IntRange(-1, 1).Draw(r, "priority")) {
		w.mayFail(r, names[i], err)
		w.foreign[names[i]] = time.Now()
	}
}

func (w *world) cancel(*rapid.T) {
	if len(w.cancels) > 0 {
		w.cancels[0]()
		w.cancels = w.cancels[1:]
	}
}

func (w *world) delete(r *rapid.T) {
	names := w.names(r)
	w.foreign[names[0]] = time.Now()
	for i, err := range w.Delete(r.Context(), keys(names...)) {
		if err == nil {
			require.Empty(r, w.has(names[i]), "%s was deleted", names[i])
		}
		if errors.Is(err, tier.ErrNotFound) || errors.Is(err, tier.ErrInUse) || errors.Is(err, tier.ErrUnavailable) {
			err = nil
		}
		require.NoError(r, err)
	}
}

// setFault lets a level fail from now on, or work again.
func (w *world) setFault(r *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(r, "level")
	w.fault[i] = rapid.SampledFrom([]string{"", "", "unavailable", "some unavailable", "hang", "some hang", "full", "lose", "damage", "pending", "canceled"}).Draw(r, "fault")
	kind := w.fault[i]
	[]*tiertest.Fault{w.disk, w.remote}[i].Do(func(c tiertest.Call) tiertest.Answer {
		some := c.N%3 == 1
		switch {
		case kind == "unavailable", kind == "some unavailable" && some:
			return tiertest.Answer{Err: fmt.Errorf("test: %w", tier.ErrUnavailable)}
		case kind == "hang", kind == "some hang" && some:
			return tiertest.Answer{Hang: true}
		case kind == "full" && is(c, "Put"):
			return tiertest.Answer{Err: tier.ErrFull}
		case kind == "pending" && some && !is(c, "Delete"):
			return tiertest.Answer{Err: tier.ErrPending}
		case kind == "canceled" && some && !is(c, "Delete"):
			return tiertest.Answer{Err: errors.New("test: something else")}
		case kind == "lose" && some:
			return tiertest.Answer{Lose: true}
		case kind == "damage" && some:
			return tiertest.Answer{Damage: true}
		}
		return tiertest.Answer{}
	})
}

// damage changes bytes of an object behind the back of its level.
func (w *world) damage(r *rapid.T) {
	name := rapid.SampledFrom(worldNames).Draw(r, "name")
	l := w.maps[rapid.IntRange(0, 1).Draw(r, "level")]
	if l.Damage(key(name)) {
		w.damaged[l.Name()+" "+name] = true
	}
}

// putForeign puts an object into a lower level, as another process would.
func (w *world) putForeign(r *rapid.T) {
	name := rapid.SampledFrom(worldNames).Draw(r, "name")
	o := worldObject(name)
	p := []tier.Put{{Object: o, Bytes: content(name, o.Size)}}
	l := w.maps[rapid.IntRange(0, 1).Draw(r, "level")]
	if l.Put(r.Context(), p); p[0].Err == nil {
		w.foreign[name] = time.Now()
	}
}

// restart kills the process, or closes the store in order.
func (w *world) restart(r *rapid.T) {
	old := w.Store
	if rapid.Bool().Draw(r, "kill") {
		w.memory = w.memory.Reopen()
		w.options.Memory = w.memory
	}
	require.NoError(r, old.Close())
	clear(w.leases)
	w.open()
}

func (w *world) sleep(r *rapid.T) {
	time.Sleep(time.Duration(rapid.SampledFrom([]int{1, 900, 2100, 11000, 60000}).Draw(r, "ms")) * time.Millisecond)
}

func (w *world) drain(r *rapid.T) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	left, err := w.Drain(ctx)
	if isMissed(err) { // a level was away or full of work while an object was stored, now or before
		require.Empty(r, left)
		return
	}
	if w.fault == [2]string{} {
		require.NoError(r, err)
	}
	require.Equal(r, err != nil, len(left) > 0)
}

// finish lets everything go, and checks that nothing stays.
func (w *world) finish() {
	for _, cancel := range w.cancels {
		cancel()
	}
	w.disk.Do(nil)
	w.remote.Do(nil)
	w.fault = [2]string{}
	for _, id := range []string{"l", "m", "n"} {
		w.open1(id).Release()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if _, err := w.Drain(w.r.Context()); !isMissed(err) { // putAgain stores everything once more
		require.NoError(w.r, err)
	}
	require.Empty(w.r, tier.Check(w.Store))
	jobs, fetches, unreported := tier.Queued(w.Store)
	require.Zero(w.r, jobs, "jobs")
	require.Zero(w.r, fetches, "fetches")
	require.Zero(w.r, unreported, "answers to report")
	require.Zero(w.r, w.memory.Usage().Held)
	for _, name := range worldNames {
		if w.due(name) {
			require.NoError(w.r, w.get(name))
		}
	}
	time.Sleep(time.Minute)
	w.putAgain()
	w.end()
}

// putAgain puts everything once more: then every level has it that is written to.
func (w *world) putAgain() {
	for _, name := range worldNames {
		require.NoError(w.r, put(w, name, worldObject(name).Parent, worldObject(name).Size))
	}
	_, err := w.Drain(w.r.Context())
	require.NoError(w.r, err)
	for i, l := range w.options.Lower {
		for _, name := range worldNames {
			if l.Write != tier.Around {
				require.NoError(w.r, w.maps[i].Stat(context.Background(), keys(name))[0].Err, "%s in %s", name, w.maps[i].Name())
			}
		}
	}
	require.Empty(w.r, tier.Check(w.Store))
}
