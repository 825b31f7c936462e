package inspect_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/inspect"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/tier/memory"
)

var ctx = context.Background()

func TestPoolAtWork(t *testing.T) {
	dir := t.TempDir()
	w, err := objstore.CreatePool(options(dir, "pool", nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, w.CheckStructure()); require.NoError(t, w.Abandon()) }()
	require.NoError(t, fill(w))
	before := contents(t, dir)
	x := open(t, dir, "pool")
	s := summary(t, x)
	require.Equal(t, inspect.Alive, s.State)
	require.Equal(t, []any{"pool", "0.33.0", "frontend", os.Getpid(), os.Geteuid()},
		[]any{s.Policy, s.Format, s.Owner, s.PID, s.UID})
	require.Equal(t, []int64{ringSize, 32, 3, 16, 3, 0},
		[]int64{s.Size, s.DataOffset, s.Objects, s.MaxObjects, s.InUse, s.Damaged})
	require.WithinDuration(t, time.Now(), s.Made, time.Hour)
	require.Empty(t, s.Problem)
	all := objects(x)
	require.Len(t, all, 3)
	var chunks int64
	for k, o := range all {
		require.Equal(t, inspect.InUse, o.State, k)
		require.Equal(t, []int64{0, 1}, []int64{o.Reads, o.Issued}, k)
		require.WithinDuration(t, time.Now(), o.Stored, time.Hour)
		chunks += o.Chunk
	}
	require.Equal(t, chunks, s.Used)
	require.Greater(t, all["key2"].Size, int64(5000))

	reader, err := objstore.Open("pool", objstore.ReaderOptions{Dir: dir, RingSize: ringSize, Readers: 1})
	require.NoError(t, err)
	holders, err := x.Holders()
	require.NoError(t, err)
	require.Equal(t, []inspect.Holder{{Kind: "reader", Name: holders[0].Name, PID: os.Getpid()}}, holders)
	require.Equal(t, 1, summary(t, x).Readers)
	require.NoError(t, reader.Close())
	require.Equal(t, before, contents(t, dir), "nothing was changed")

	closed, err := objstore.CreatePool(options(dir, "closed", nil))
	require.NoError(t, err)
	require.NoError(t, closed.Detach())
	require.Equal(t, inspect.Closed, summary(t, open(t, dir, "closed")).State)
}

// TestKilledWriter: what a killed process left is shown as it is, its leases too, and may be taken over
// meanwhile.
func TestKilledWriter(t *testing.T) {
	dir := killed(t)
	x := open(t, dir, "level")
	s := summary(t, x)
	require.Equal(t, inspect.Orphan, s.State)
	require.Equal(t, []any{"tier/1", "ringcache serve", 1}, []any{s.Format, s.Owner, s.Leases})
	all := objects(x)
	require.Len(t, all, 3)
	pinned := all["space/pinned"]
	require.Equal(t, []any{"space", "pinned", "team",
		int64(3000), inspect.InUse, []string{"lease ringcache/session/lease"}},
		[]any{pinned.Space, pinned.Name, pinned.Tenant, pinned.Size, pinned.State, pinned.HeldBy})
	require.Equal(t, inspect.Reserved, all["space/written"].State)
	require.Equal(t, pinned.HeldBy, all["space/written"].HeldBy)
	require.Equal(t, inspect.Evictable, all["space/idle"].State)
	require.Equal(t, s.Used, pinned.Chunk+all["space/written"].Chunk+all["space/idle"].Chunk)
	holders, err := x.Holders()
	require.NoError(t, err)
	require.Equal(t, []inspect.Holder{{
		Kind: "lease", Name: "ringcache/session/lease", Client: "vllm 0.33.0 worker 0",
		PID: 4711, Until: holders[0].Until,
		Pinned: 1, Reserved: 1, Bytes: pinned.Chunk + all["space/written"].Chunk,
	}}, clean(holders))
	require.WithinDuration(t, time.Now().Add(time.Hour), holders[0].Until, time.Hour/2)

	l, err := memory.Open(memory.Options{Name: "level", Dir: dir, Size: 1 << 20})
	require.NoError(t, err, "looking kept nobody from it")
	require.Equal(t, inspect.Alive, summary(t, x).State)
	require.Len(t, l.Leases(), 1)
	require.NoError(t, l.CheckStructure())
	require.NoError(t, l.Close())
	require.Equal(t, inspect.Orphan, summary(t, open(t, dir, "pool")).State)
}

// clean takes what is not exported out of holders.
func clean(all []inspect.Holder) (out []inspect.Holder) {
	for _, h := range all {
		b, err := json.Marshal(h)
		if err != nil {
			panic(err)
		}
		var c inspect.Holder
		if err := json.Unmarshal(b, &c); err != nil {
			panic(err)
		}
		c.Until = h.Until
		out = append(out, c)
	}
	return out
}

func TestList(t *testing.T) {
	dir := killed(t)
	w, err := objstore.CreateFIFO(options(dir, "alive", nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, w.CheckStructure()); require.NoError(t, w.Abandon()) }()
	require.NoError(t, fill(w))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sem.something"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "psm_1234"), make([]byte, 8192), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "VLLM_OBJECT_STORAGE_SHM_BUFFER"), make([]byte, 8192), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cut.ctl"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "open.ctl"), make([]byte, 4096), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, "open.ctl"), 0o606))
	require.NoError(t, os.Symlink("pool", filepath.Join(dir, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	all, err := inspect.List(inspect.Options{Dir: dir})
	require.NoError(t, err)
	require.Equal(t, []string{"VLLM_OBJECT_STORAGE_SHM_BUFFER", "alive", "cut", "level", "open", "pool"}, names(all))
	states := map[string]inspect.State{}
	for _, s := range all {
		states[s.Name] = s.State
		if s.State == inspect.Damaged || s.State == inspect.Denied {
			require.NotEmpty(t, s.Problem)
		}
	}
	require.Equal(t, map[string]inspect.State{
		"VLLM_OBJECT_STORAGE_SHM_BUFFER": inspect.Foreign,
		"alive":                          inspect.Alive,
		"cut":                            inspect.Damaged,
		"level":                          inspect.Orphan,
		"open":                           inspect.Denied,
		"pool":                           inspect.Orphan,
	}, states)
	_, err = inspect.List(inspect.Options{Dir: dir + "/none"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = inspect.Open("none", inspect.Options{Dir: dir})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = inspect.Open("../x", inspect.Options{Dir: dir})
	require.ErrorContains(t, err, "name")
	_, err = inspect.Open("link", inspect.Options{Dir: dir})
	require.ErrorIs(t, err, segment.ErrUnsafe)
	none, err := inspect.List(inspect.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	require.NotNil(t, none)
	require.Empty(t, none)
}

// TestForeignIsOpenBy: who has a ring without a sidecar open is found.
func TestForeignIsOpenBy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "VLLM_OBJECT_STORAGE_SHM_BUFFER_1")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(1<<20))
	find := func() []int {
		all, err := inspect.List(inspect.Options{Dir: dir})
		require.NoError(t, err)
		return all[0].OpenBy
	}
	require.Empty(t, find(), "this process looks at it")
	cat := exec.Command("cat")
	cat.ExtraFiles = []*os.File{f}
	end, err := cat.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cat.Start())
	require.Equal(t, []int{cat.Process.Pid}, find())
	require.NoError(t, end.Close())
	require.NoError(t, cat.Wait())
	require.NoError(t, f.Close())
	require.Empty(t, find())
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), st.Size())
}

// TestFIFOAndForeign: the chunks of a ring are found by their headers, with a sidecar and without.
func TestFIFOAndForeign(t *testing.T) {
	for _, version := range []string{"0.11.1", "0.33.0"} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			g, err := pycompat.Lookup(version)
			require.NoError(t, err)
			w, err := objstore.CreateFIFO(options(dir, "ring", g))
			require.NoError(t, err)
			defer func() { require.NoError(t, w.CheckStructure()); require.NoError(t, w.Abandon()) }()
			require.NoError(t, fill(w))
			check := func(policy string) {
				x := open(t, dir, "ring")
				s := summary(t, x)
				require.Equal(t, []any{policy, int64(3), int64(g.DataOffset), int64(-1)},
					[]any{s.Policy, s.Objects, s.DataOffset, s.Used})
				var ids []uint32
				for o := range x.Objects() {
					require.Equal(t, inspect.Unknown, o.State)
					ids = append(ids, o.ID)
				}
				require.Equal(t, []uint32{0, 1, 2}, ids)
			}
			check("fifo")
			require.NoError(t, os.Rename(filepath.Join(dir, "ring.ctl"), filepath.Join(dir, "moved")))
			check("foreign")
			x, err := inspect.Open("ring", inspect.Options{Dir: dir, Generation: g})
			require.NoError(t, err)
			require.Equal(t, version, summary(t, x).Format)
			require.NoError(t, x.Close())
			require.NoError(t, os.Rename(filepath.Join(dir, "moved"), filepath.Join(dir, "ring.ctl")))
		})
	}
}

func TestMap(t *testing.T) {
	dir := killed(t)
	x := open(t, dir, "level")
	m, err := x.Map(100)
	require.NoError(t, err)
	require.Len(t, m.Cells, 100)
	var used int64
	states := map[inspect.State]int64{}
	for i, c := range m.Cells {
		if i > 0 {
			require.Equal(t, m.Cells[i-1].Address+m.Cells[i-1].Size, c.Address)
		}
		used += c.Used()
		for s, n := range c.States {
			states[s] += n
		}
	}
	require.Equal(t, m.Summary.Used, used)
	last := m.Cells[99]
	require.Equal(t, m.Summary.Size, last.Address+last.Size)
	all := objects(x)
	require.Equal(t, map[inspect.State]int64{
		inspect.InUse: all["space/pinned"].Chunk, inspect.Reserved: all["space/written"].Chunk,
		inspect.Evictable: all["space/idle"].Chunk,
	}, states)
	var b strings.Builder
	require.NoError(t, m.SVG(&b))
	require.Contains(t, b.String(), "<title>Segment level</title>")
	require.Contains(t, b.String(), `class="in-use"`)
	m, err = x.Map(1 << 30)
	require.NoError(t, err)
	require.Len(t, m.Cells, int((m.Summary.Size+63)/64), "a cell is not smaller than what a pool can place")
}

// TestBriefMapIsTheMap: it has the same parts in the same states, and reads no chunk.
func TestBriefMapIsTheMap(t *testing.T) {
	dir := killed(t)
	for _, name := range []string{"level", "pool"} {
		want, err := open(t, dir, name).Map(100)
		require.NoError(t, err)
		brief, err := inspect.Open(name, inspect.Options{Dir: dir, Brief: true})
		require.NoError(t, err)
		defer func() { require.NoError(t, brief.Close()) }()
		got, err := brief.Map(100)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for o := range brief.Objects() {
			require.Empty(t, o.Key)
			require.NotEqual(t, inspect.Damaged, o.State)
		}
	}
	path := filepath.Join(dir, "level")
	change(t, path, func(b []byte) {
		for i := range b[64:] { // behind what says whose table of leases is the segment's
			b[64+i] = 0xff
		}
	})
	brief, err := inspect.Open("level", inspect.Options{Dir: dir, Brief: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, brief.Close()) }()
	for o := range brief.Objects() {
		require.NotEqual(t, inspect.Damaged, o.State, "what chunks have is not read")
	}
	require.Equal(t, inspect.Damaged, slices.Collect(open(t, dir, "level").Objects())[0].State)
}
