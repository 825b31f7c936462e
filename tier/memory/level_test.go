//go:build linux

package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/tier"
)

func TestLevel(t *testing.T) {
	l := open(t, options(t))
	require.Equal(t, "memory", l.Name())
	_, err := get(l, "a")
	require.ErrorIs(t, err, tier.ErrNotFound)
	full := tier.Object{
		Key: tier.Key{Space: "space", Name: "a\xff\xfe"}, Size: 1000, Parent: "p\x80", Tenant: "tenant", Cost: time.Second, Note: []byte("a note\x00"),
	}
	require.NoError(t, put(l, full))
	require.NoError(t, put(l, full), "it is there")
	found := l.Stat(context.Background(), []tier.Key{full.Key, key("b")})
	require.NoError(t, found[0].Err)
	require.Equal(t, full, found[0].Object)
	require.ErrorIs(t, found[1].Err, tier.ErrNotFound)
	require.NoError(t, put(l, object("empty", "", 0)))
	b, err := get(l, "empty")
	require.NoError(t, err)
	require.NotNil(t, b)
	require.Empty(t, b)
	require.NoError(t, put(l, tier.Object{Key: tier.Key{Name: "no space"}, Size: 3}))

	for space, want := range map[string]int{"": 3, "space": 2, "other": 0} {
		n := 0
		for o, err := range l.List(context.Background(), space) {
			require.NoError(t, err)
			if o.Name == full.Name {
				require.Equal(t, full, o)
			}
			n++
		}
		require.Equal(t, want, n)
	}
	u := l.Usage()
	require.Equal(t, int64(3), u.Objects)
	require.Equal(t, int64(64<<10), u.Capacity)
	require.Zero(t, u.Held)
	require.Greater(t, u.Tenants["tenant"], int64(1000))
	require.Greater(t, u.Bytes, u.Tenants["tenant"])

	l = reopen(t, l)
	require.Equal(t, full, l.Stat(context.Background(), []tier.Key{full.Key})[0].Object)
	errs := l.Delete(context.Background(), []tier.Key{full.Key, full.Key, {Space: "\x00"}})
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], tier.ErrNotFound)
	require.ErrorIs(t, errs[2], fs.ErrInvalid)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestGetTheWaysOfIt(t *testing.T) {
	l := open(t, options(t))
	require.NoError(t, put(l, object("a", "", 3000)))
	mine := errors.New("mine")
	memory := make([]byte, 4000)
	var to bytes.Buffer
	into := func(b []byte, err error) func(tier.Object) ([]byte, error) {
		return func(o tier.Object) ([]byte, error) {
			require.Equal(t, int64(3000), o.Size)
			return b, err
		}
	}
	gets := []tier.Get{
		{Key: key("a"), Into: into(memory[500:3500], nil)},
		{Key: key("a"), Into: into(nil, mine)},
		{Key: key("a"), Into: into(memory, nil)},
		{Key: key("a"), To: &to},
		{Key: key("a"), To: failing{mine}},
		{Key: key("a"), To: failing{}},
		{Key: tier.Key{}},
		{Key: key("none"), Bytes: memory},
	}
	l.Get(context.Background(), gets)
	require.NoError(t, gets[0].Err)
	require.Equal(t, content("a", 3000), memory[500:3500])
	require.ErrorIs(t, gets[1].Err, mine)
	require.ErrorIs(t, gets[2].Err, fs.ErrInvalid)
	require.NoError(t, gets[3].Err)
	require.Nil(t, gets[3].Bytes)
	require.Equal(t, content("a", 3000), to.Bytes())
	require.ErrorIs(t, gets[4].Err, mine)
	require.ErrorIs(t, gets[5].Err, io.ErrShortWrite)
	require.ErrorIs(t, gets[6].Err, fs.ErrInvalid)
	require.ErrorIs(t, gets[7].Err, tier.ErrNotFound)
	for _, g := range gets[1:] {
		require.Nil(t, g.Bytes)
	}
	require.Panics(t, func() {
		l.Get(context.Background(), []tier.Get{{Key: key("a"), Into: func(tier.Object) ([]byte, error) { panic("mine") }}})
	})
	require.Zero(t, l.Usage().Held, "a panic of the caller leaves nothing behind")
}

func TestPutTheWaysOfIt(t *testing.T) {
	l := open(t, options(t))
	mine := errors.New("mine")
	ctx, cancel := context.WithCancel(context.Background())
	puts := []tier.Put{
		{Object: object("short", "", 100), Bytes: make([]byte, 99)},
		{Object: object("early", "", 100), From: strings.NewReader("too little")},
		{Object: object("late", "", 10), From: strings.NewReader("eleven byte")},
		{Object: object("broken", "", 100), From: iotest.ErrReader(mine)},
		{Object: object("large", "", 65<<10), Bytes: make([]byte, 65<<10)},
		{Object: object("never", "", 1<<40), From: strings.NewReader("")},
		{Object: object("good", "", 100), From: iotest.OneByteReader(bytes.NewReader(content("good", 100)))},
		{Object: object("empty", "", 0), From: strings.NewReader("")},
		{Object: tier.Object{Key: key("x"), Size: -1}},
		{Object: object("ends", "", 100), From: readerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })},
		{Object: object("behind", "", 100), Bytes: content("behind", 100)},
	}
	l.Put(ctx, puts)
	for i, want := range []error{fs.ErrInvalid, io.ErrUnexpectedEOF, fs.ErrInvalid, mine, tier.ErrTooLarge, tier.ErrTooLarge, nil, nil, fs.ErrInvalid, nil, context.Canceled} {
		if want == nil && i != 9 {
			require.NoError(t, puts[i].Err)
		} else if want != nil {
			require.ErrorIs(t, puts[i].Err, want, puts[i].Object.Name)
		}
	}
	require.Error(t, puts[9].Err, "it never ends")
	require.Equal(t, []string{"good", "empty"}, present(l, "short", "early", "late", "broken", "large", "never", "good", "empty", "x", "ends", "behind"))
	require.Zero(t, l.Usage().Held)
	requireContent(t, l, "good", 100)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// While a Put is at work, the object is pending for everyone, and Delete finds nothing.
func TestPendingIsAnAnswer(t *testing.T) {
	l := open(t, options(t))
	puts := []tier.Put{{Object: object("a", "", 1), From: readerFunc(func(b []byte) (int, error) {
		_, err := get(l, "a")
		require.ErrorIs(t, err, tier.ErrPending)
		require.ErrorIs(t, l.Stat(context.Background(), keys("a"))[0].Err, tier.ErrPending)
		require.ErrorIs(t, put(l, object("a", "", 1)), tier.ErrPending)
		require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], tier.ErrNotFound)
		require.Positive(t, l.Usage().Held)
		return 0, io.EOF
	})}}
	l.Put(context.Background(), puts)
	require.ErrorIs(t, puts[0].Err, io.ErrUnexpectedEOF)
	require.Empty(t, present(l, "a"))
}

func TestClosed(t *testing.T) {
	l := open(t, options(t))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	require.NoError(t, put(l, object("a", "", 10)))
	requirePlaced(t, x.Pin(keys("a")))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err := get(l, "a")
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, put(l, object("b", "", 1)), fs.ErrClosed)
	require.ErrorIs(t, l.Stat(context.Background(), keys("a"))[0].Err, fs.ErrClosed)
	require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], fs.ErrClosed)
	for _, err := range l.List(context.Background(), "") {
		require.ErrorIs(t, err, fs.ErrClosed)
	}
	_, err = l.Lease(context.Background(), tier.LeaseOptions{ID: "y"})
	require.ErrorIs(t, err, fs.ErrClosed)
	require.ErrorIs(t, x.Pin(keys("a"))[0].Err, fs.ErrClosed)
	require.ErrorIs(t, x.Commit(keys("a"))[0], fs.ErrClosed)
	require.ErrorIs(t, x.SetUntil(time.Now()), fs.ErrClosed)
	require.Empty(t, l.Leases())
	require.Equal(t, []tier.Key{key("a")}, x.State().Pinned)
	x.Release()
	x.Release()
	l = open(t, l.o)
	require.Len(t, l.Leases(), 1, "it is the next one's")
	require.NoError(t, l.Remove())
	left, err := os.ReadDir(l.o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOpenRefuses(t *testing.T) {
	o := options(t)
	for _, bad := range []func(*Options){
		func(o *Options) { o.Name = "" },
		func(o *Options) { o.Name = "a/b" },
		func(o *Options) { o.Name = strings.Repeat("x", 250) },
		func(o *Options) { o.Size = 100 },
		func(o *Options) { o.MaxObjects = -1 },
		func(o *Options) { o.MaxLeases = 1 << 20 },
		func(o *Options) { o.MaxPins = -1 },
		func(o *Options) { o.Quota = -1 },
		func(o *Options) { o.Quotas = map[string]int64{"a": -1} },
		func(o *Options) { o.Owner = strings.Repeat("x", 65) },
	} {
		c := o
		bad(&c)
		_, err := Open(c)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)

	l := open(t, o)
	_, err = Open(o)
	require.ErrorIs(t, err, segment.ErrOwned)
	require.NoError(t, l.Close())
	larger := o
	larger.Size *= 2
	_, err = Open(larger)
	require.ErrorIs(t, err, segment.ErrSize)
	l = open(t, o)
	require.NoError(t, l.Remove())
	foreign, err := segment.Create(segment.Options{Name: o.Name, Dir: o.Dir, RingSize: int(o.Size), DataOffset: frontSize})
	require.NoError(t, err)
	_, err = Open(o)
	require.ErrorIs(t, err, segment.ErrForeign)
	require.NoError(t, foreign.Destroy())
	foreign, err = segment.Create(segment.Options{
		Name: o.Name, Dir: o.Dir, RingSize: int(o.Size), DataOffset: frontSize, Sidecar: &segment.SidecarOptions{Pool: true, Format: "else", Objects: 5},
	})
	require.NoError(t, err)
	require.NoError(t, foreign.Close())
	_, err = Open(o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, `"else"`)
	swept, err := segment.Sweep(segment.SweepOptions{Prefix: o.Name, Dir: o.Dir, Remove: true})
	require.NoError(t, err)
	require.True(t, swept[0].Removed)
}

func TestEvictsLeavesFirst(t *testing.T) {
	o := options(t)
	o.Size = 4<<10 + 64
	l := open(t, o)
	for i, name := range []string{"a", "b", "c", "d"} {
		parent := ""
		if i > 0 {
			parent = string(rune('a' + i - 1))
		}
		require.NoError(t, put(l, object(name, parent, 800)))
	}
	require.ErrorIs(t, put(l, object("e", "d", 800)), tier.ErrFull, "only its ancestors could go")
	require.Equal(t, []string{"a", "b", "c", "d"}, present(l, "a", "b", "c", "d", "e"))
	require.NoError(t, put(l, object("x", "", 800)))
	require.Equal(t, []string{"a", "b", "c"}, present(l, "a", "b", "c", "d"))
	require.Equal(t, int64(1), l.Usage().Evicted)
	l = reopen(t, l)
	require.NoError(t, put(l, object("y", "", 3500)), "a whole chain goes, leaf by leaf")
	require.NotContains(t, present(l, "a", "b", "c"), "c")
	require.NoError(t, put(l, object("z", "c", 10)), "a child may come without its parent")
}

func TestQuota(t *testing.T) {
	o := options(t)
	o.Quotas = map[string]int64{"small": 3000}
	l := open(t, o)
	put3 := func(name string) error {
		x := object(name, "", 1000)
		x.Tenant = "small"
		return put(l, x)
	}
	require.NoError(t, put3("a"))
	require.NoError(t, put3("b"))
	require.NoError(t, put3("c"), "its own go")
	require.Len(t, present(l, "a", "b", "c"), 2)
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	requirePlaced(t, x.Pin(keys(present(l, "a", "b", "c")...)))
	require.ErrorIs(t, put3("d"), tier.ErrFull)
	require.NoError(t, put(l, object("e", "", 1000)), "the level has room")
	x.Release()
	require.NoError(t, put3("d"))
}

// Something cuts the segment short.
func TestMemoryThatIsGone(t *testing.T) {
	l, err := Open(options(t))
	require.NoError(t, err)
	require.NoError(t, put(l, object("a", "", 30000)))
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	requirePlaced(t, x.Pin(keys("a")))
	for _, file := range []string{"level", "level.leases", "level.ctl"} {
		require.NoError(t, os.Truncate(l.o.Dir+"/"+file, 0))
		_, err := get(l, "a")
		require.ErrorIs(t, err, tier.ErrUnavailable)
		require.ErrorIs(t, put(l, object("b", "", 100)), tier.ErrUnavailable)
		require.Error(t, x.Reserve([]tier.Object{object("c", "", 100)})[0].Err)
		x.Unpin(keys("a"))
	}
	_, err = l.Lease(context.Background(), tier.LeaseOptions{ID: "y"})
	require.ErrorIs(t, err, tier.ErrUnavailable)
	x.Release()
	_ = l.Close()
	_, err = Open(l.o)
	require.Error(t, err)
}

// A Get is no lease: what it reads can be deleted, and put again, and it reads what it found.
func TestDeleteOfWhatIsBeingRead(t *testing.T) {
	l := open(t, options(t))
	require.NoError(t, put(l, object("a", "", 1000)))
	var got bytes.Buffer
	gets := []tier.Get{{Key: key("a"), Into: func(o tier.Object) ([]byte, error) {
		requireNone(t, l.Delete(context.Background(), keys("a")))
		require.ErrorIs(t, l.Delete(context.Background(), keys("a"))[0], tier.ErrNotFound)
		require.NoError(t, put(l, object("a", "", 2000)))
		for i := range 70 {
			require.NoError(t, put(l, object("x"+string(rune('A'+i)), "", 2000)))
		}
		return make([]byte, o.Size), nil
	}}, {Key: key("none"), To: &got}}
	l.Get(context.Background(), gets)
	require.NoError(t, gets[0].Err)
	require.Equal(t, content("a", 1000), gets[0].Bytes)
	require.Zero(t, l.Usage().Held)
}

// TestAMissNamesTheObject, and not the key under which the segment has it.
func TestAMissNamesTheObject(t *testing.T) {
	l := open(t, Options{Name: "miss", Dir: t.TempDir(), Size: 1 << 20})
	k := tier.Key{Space: "model", Name: "x"}
	err := l.Stat(t.Context(), []tier.Key{k})[0].Err
	require.ErrorIs(t, err, tier.ErrNotFound)
	require.EqualError(t, err, `memory: object "x" of space "model": tier: no such object`)
}

// TestASizeThatIsTooSmallNamesTheLeast.
func TestASizeThatIsTooSmallNamesTheLeast(t *testing.T) {
	err := Options{Name: "x", Size: 1024}.Validate()
	require.ErrorContains(t, err, "Size is 1024, and the least is 4096; 0 takes over a segment that is there")
}
