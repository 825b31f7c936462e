package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a level that ends with the test.
func open(t testing.TB, o Options) *Level {
	t.Helper()
	l, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func start(t testing.TB, args ...string) (*redistest.Server, *Level) {
	t.Helper()
	s := redistest.Start(t, args...)
	return s, open(t, Options{URL: "redis://" + s.Addr(), Timeout: time.Minute}) // a busy machine may need that
}

// content is the bytes of an object, different for each name at almost every place.
func content(name string, size int) []byte {
	b := make([]byte, 0, size)
	for at := crc32.ChecksumIEEE([]byte(name)) % noiseSize; len(b) < size; at = 0 {
		b = append(b, noise()[at:min(noiseSize, int(at)+size-len(b))]...)
	}
	return b
}

const noiseSize = 1<<20 - 3

var noise = sync.OnceValue(func() []byte {
	b := make([]byte, noiseSize)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
})

func object(name string, size int) tier.Object {
	return tier.Object{Key: tier.Key{Space: "space", Name: name}, Size: int64(size)}
}

func keyOf(name string) tier.Key { return object(name, 0).Key }

// patience is how long a server that works may miss the time limits of a level: a busy machine may need that.
const patience = 5 * time.Minute

// put stores objects in a server that works.
func put(t testing.TB, l *Level, objects ...tier.Object) {
	t.Helper()
	var errs []error
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		errs = tryPut(t.Context(), l, objects...)
		if !errors.Is(errors.Join(errs...), tier.ErrUnavailable) || time.Since(began) > patience {
			break
		}
	}
	for i, err := range errs {
		require.NoError(t, err, objects[i].Key)
	}
}

func tryPut(ctx context.Context, l *Level, objects ...tier.Object) []error {
	puts := make([]tier.Put, len(objects))
	for i, o := range objects {
		puts[i] = tier.Put{Object: o, Bytes: content(o.Name, int(o.Size))}
	}
	l.Put(ctx, puts)
	errs := make([]error, len(puts))
	for i := range puts {
		errs[i] = puts[i].Err
	}
	return errs
}

// get returns the answer about one object, whose bytes must be right if there are any.
func get(t testing.TB, l *Level, name string) tier.Get {
	t.Helper()
	gets := []tier.Get{{Key: keyOf(name)}}
	l.Get(t.Context(), gets)
	if gets[0].Err == nil {
		require.True(t, bytes.Equal(content(name, int(gets[0].Object.Size)), gets[0].Bytes), name)
	}
	return gets[0]
}

// mustGet is get from a server that works, which has the object.
func mustGet(t testing.TB, l *Level, name string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if err := get(t, l, name).Err; !errors.Is(err, tier.ErrUnavailable) || time.Since(began) > patience {
			require.NoError(t, err, name)
			return
		}
	}
}

// What was put comes back with its whole description, at sizes around those at which the way changes.
func TestPutAndGet(t *testing.T) {
	_, l := start(t)
	sizes := []int{0, 1, probeGet - headFixed - 1, probeGet - headFixed, probeGet - headFixed + 1, probeGet,
		connBuffer, 1 << 20, 5<<20 + 3}
	objects := make([]tier.Object, len(sizes))
	for i, size := range sizes {
		objects[i] = object(strconv.Itoa(size), size)
		if i%2 == 1 {
			objects[i].Parent, objects[i].Tenant, objects[i].Cost = strings.Repeat("p", tier.MaxName),
				strings.Repeat("t", tier.MaxTenant), time.Second
			objects[i].Note = content("note", tier.MaxNote)
		}
	}
	put(t, l, objects...)
	put(t, l, objects...) // is there already
	wanted := make([]tier.Key, len(objects))
	for i, o := range objects {
		wanted[i] = o.Key
	}
	for i, f := range l.Stat(t.Context(), append(wanted, keyOf("none"))) {
		if i == len(objects) {
			require.ErrorIs(t, f.Err, tier.ErrNotFound)
			continue
		}
		require.NoError(t, f.Err)
		require.Equal(t, objects[i], f.Object)
	}
	plain, into, to := make([]tier.Get, len(wanted)), make([]tier.Get, len(wanted)), make([]tier.Get, len(wanted))
	buffers := make([]bytes.Buffer, len(wanted))
	memory := make([][]byte, len(wanted))
	for i, k := range wanted {
		plain[i].Key, into[i].Key, to[i].Key = k, k, k
		to[i].To = &buffers[i]
		into[i].Into = func(o tier.Object) ([]byte, error) {
			require.Equal(t, objects[i], o)
			require.Nil(t, memory[i], "Into is called once")
			memory[i] = make([]byte, o.Size)
			return memory[i], nil
		}
	}
	l.Get(t.Context(), plain)
	l.Get(t.Context(), into)
	l.Get(t.Context(), to)
	for i, o := range objects {
		want := content(o.Name, int(o.Size))
		for _, g := range []tier.Get{plain[i], into[i], to[i]} {
			require.NoError(t, g.Err)
			require.Equal(t, o, g.Object)
		}
		require.True(t, bytes.Equal(want, plain[i].Bytes), o.Name)
		require.True(t, bytes.Equal(want, memory[i]), o.Name)
		require.True(t, bytes.Equal(want, into[i].Bytes), o.Name)
		require.True(t, bytes.Equal(want, buffers[i].Bytes()), o.Name)
		require.Nil(t, to[i].Bytes)
	}
	require.Equal(t, tier.Usage{Objects: -1, Bytes: -1, Evicted: -1}, l.Usage())
	errs := l.Delete(t.Context(), append(wanted, keyOf("none")))
	for i, err := range errs[:len(objects)] {
		require.NoError(t, err, i)
	}
	require.ErrorIs(t, errs[len(objects)], tier.ErrNotFound)
	for _, f := range l.Stat(t.Context(), wanted) {
		require.ErrorIs(t, f.Err, tier.ErrNotFound)
	}
}

// A batch that is longer than a pipeline, with misses in it, and the same key twice.
func TestLongBatch(t *testing.T) {
	_, l := start(t)
	var objects []tier.Object
	for i := range 3*batch + 7 {
		objects = append(objects, object(fmt.Sprint("long ", i), i%50*1000))
	}
	put(t, l, append(objects, objects[0], objects[len(objects)-1])...)
	var gets []tier.Get
	for i, o := range objects {
		gets = append(gets, tier.Get{Key: o.Key}, tier.Get{Key: keyOf(fmt.Sprint("none ", i))})
	}
	gets = append(gets, gets[0])
	l.Get(t.Context(), gets)
	for i, g := range gets {
		if i%2 == 1 {
			require.ErrorIs(t, g.Err, tier.ErrNotFound)
			require.NotErrorIs(t, g.Err, tier.ErrCorrupt)
			continue
		}
		require.NoError(t, g.Err)
		require.True(t, bytes.Equal(content(g.Key.Name, int(g.Object.Size)), g.Bytes), g.Key)
	}
}

// A pipeline of large objects is cut, and their memory counts against the bytes in flight.
func TestManyLargeObjects(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "unix://" + s.Socket(), MaxBytesInFlight: 20 << 20, Timeout: time.Minute})
	var objects []tier.Object
	for i := range 6 {
		objects = append(objects, object(fmt.Sprint("large ", i), 11<<20+i))
	}
	put(t, l, objects...)
	for _, o := range objects {
		require.NoError(t, get(t, l, o.Name).Err)
	}
	gets := make([]tier.Get, len(objects))
	for i, o := range objects {
		gets[i].Key = o.Key
	}
	l.Get(t.Context(), gets)
	for _, g := range gets {
		require.NoError(t, g.Err)
		require.True(t, bytes.Equal(content(g.Key.Name, int(g.Object.Size)), g.Bytes))
	}
	require.True(t, l.calls.Idle(), "everything was given back")
}

func TestPutFromReader(t *testing.T) {
	_, l := start(t)
	broken := errors.New("broken")
	from := func(name string, size int, r io.Reader) tier.Put {
		return tier.Put{Object: object(name, size), From: r}
	}
	puts := []tier.Put{
		from("right", 10, bytes.NewReader(content("right", 10))),
		from("short", 10, bytes.NewReader(content("short", 9))),
		from("long", 10, bytes.NewReader(content("long", 11))),
		from("broken", 10, io.MultiReader(bytes.NewReader(content("broken", 9)), errorReader{broken})),
		from("broken at the end", 10, io.MultiReader(bytes.NewReader(content("broken", 10)), errorReader{broken})),
		from("empty", 0, bytes.NewReader(nil)),
		from("not empty", 0, bytes.NewReader([]byte{1})),
		{Object: object("other length", 5), Bytes: make([]byte, 4)},
		{Object: object("", 5), Bytes: make([]byte, 5)},
		{Object: object("huge", largest), From: errorReader{broken}},
	}
	l.Put(t.Context(), puts)
	want := []error{nil, io.ErrUnexpectedEOF, fs.ErrInvalid, broken, broken, nil, fs.ErrInvalid, fs.ErrInvalid,
		fs.ErrInvalid, tier.ErrTooLarge}
	for i, p := range puts {
		require.ErrorIs(t, p.Err, want[i], p.Object.Name)
		if want[i] != nil && p.Object.Name != "" {
			require.ErrorIs(t, get(t, l, p.Object.Name).Err, tier.ErrNotFound, p.Object.Name)
		}
	}
	require.NoError(t, get(t, l, "right").Err)
	require.NoError(t, get(t, l, "empty").Err)
}

// What is in front of a reader in a batch has been sent when the reader is read, which may take long.
func TestReaderHasAPipelineOfItsOwn(t *testing.T) {
	_, l := start(t)
	read := false
	puts := []tier.Put{
		{Object: object("a", 1), Bytes: content("a", 1)},
		{Object: object("b", 1), From: readerFunc(func(p []byte) (int, error) {
			if read {
				return 0, io.EOF
			}
			read = true
			if _, err := l.client.Get(t.Context(), "ringcache:space:a").Result(); err != nil {
				return 0, err
			}
			return copy(p, content("b", 1)), nil
		})},
	}
	l.Put(t.Context(), puts)
	require.NoError(t, puts[0].Err)
	require.NoError(t, puts[1].Err)
	require.True(t, read)
	require.NoError(t, get(t, l, "b").Err)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

func TestIntoFails(t *testing.T) {
	_, l := start(t)
	put(t, l, object("a", 10), object("b", 100_000))
	no := errors.New("no")
	gets := []tier.Get{
		{Key: keyOf("a"), Into: func(tier.Object) ([]byte, error) { return nil, no }},
		{Key: keyOf("b"), Into: func(tier.Object) ([]byte, error) { return make([]byte, 99_999), nil }},
		{Key: keyOf("b"), To: errorWriter{no}},
		{Key: keyOf("a")},
	}
	l.Get(t.Context(), gets)
	require.ErrorIs(t, gets[0].Err, no)
	require.ErrorIs(t, gets[1].Err, fs.ErrInvalid)
	require.ErrorIs(t, gets[2].Err, no)
	require.NoError(t, gets[3].Err)
	require.NoError(t, get(t, l, "b").Err, "none of that is damage")
}

type errorWriter struct{ err error }

func (w errorWriter) Write([]byte) (int, error) { return 0, w.err }

// Spaces and names of all kinds, and keys of others beside them.
func TestList(t *testing.T) {
	s, l := start(t)
	want := map[tier.Key]tier.Object{}
	var objects []tier.Object
	for i, space := range []string{"", "a", "a:b", "a%3Ab", "a*", "[a]", `a\`, "a-^?",
		"long " + strings.Repeat("s", 200)} {
		for _, name := range []string{"n", ":", "%", "*", "a/b@c", "{x}", "\r\n", "\xff\xfe"} {
			o := tier.Object{Key: tier.Key{Space: space, Name: name}, Size: int64(i), Parent: "parent"}
			objects = append(objects, o)
			want[o.Key] = o
		}
	}
	for i := range 1500 {
		o := object(strconv.Itoa(i), i%3)
		objects = append(objects, o)
		want[o.Key] = o
	}
	put(t, l, objects...)
	s.Do("set", "other", "value")
	s.Do("set", "ringcache:no-colon", "value")
	s.Do("set", "ringcache:%zz:name", "value")
	s.Do("set", "ringcache:%61:not the escape of a", "value")
	s.Do("rpush", "ringcache:a:list", "value")
	got := map[tier.Key]tier.Object{}
	for o, err := range l.List(t.Context(), "") {
		require.NoError(t, err)
		_, double := got[o.Key]
		require.False(t, double, "listed once")
		got[o.Key] = o
	}
	require.Equal(t, want, got)
	require.Equal(t, "list", s.Do("type", "ringcache:a:list"), "List removes nothing")
	require.Equal(t, "value", s.Do("get", "ringcache:no-colon"), "but what isn't an object's key stays")
	for _, space := range []string{"a", "a:b", "a%3Ab", "a*", "[a]", `a\`, "a-^?", "none", "space"} {
		n := 0
		for o, err := range l.List(t.Context(), space) {
			require.NoError(t, err)
			require.Equal(t, space, o.Space)
			n++
		}
		expected := 0
		for k := range want {
			if k.Space == space {
				expected++
			}
		}
		require.Equal(t, expected, n, space)
	}
	require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{{Space: "a", Name: "list"}})[0].Err, tier.ErrCorrupt)
	require.Equal(t, "none", s.Do("type", "ringcache:a:list"), "nobody else uses keys of the prefix")
	for range l.List(t.Context(), "") {
		require.NoError(t, l.Close(), "nothing is held while the caller has the turn")
		break
	}
}

// The server may return a key twice when it enlarges its table meanwhile.
func TestKeyListedTwice(t *testing.T) {
	_, l := start(t)
	put(t, l, object("a", 1), object("b", 1))
	seen, seed := map[uint64]struct{}{}, maphash.MakeSeed()
	for _, want := range []int{2, 0} {
		keys, _, err := l.scan(t.Context(), l.client, 0, "ringcache:*", seen, seed)
		require.NoError(t, err)
		require.Len(t, keys, want)
	}
}

func TestClosed(t *testing.T) {
	_, l := start(t)
	put(t, l, object("a", 1))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, get(t, l, "a").Err, fs.ErrClosed)
	require.ErrorIs(t, tryPut(t.Context(), l, object("a", 1))[0], fs.ErrClosed)
	require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{keyOf("a")})[0].Err, fs.ErrClosed)
	require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{keyOf("a")})[0], fs.ErrClosed)
	require.ErrorIs(t, l.Ping(t.Context()), fs.ErrClosed)
	for _, err := range l.List(t.Context(), "") {
		require.ErrorIs(t, err, fs.ErrClosed)
	}
	l.Get(t.Context(), nil)
	l.Put(t.Context(), nil)
	require.Empty(t, l.Stat(t.Context(), nil))
	require.Empty(t, l.Delete(t.Context(), nil))
	require.Equal(t, "redis", l.Name())
}

func TestCancelled(t *testing.T) {
	_, l := start(t)
	put(t, l, object("a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gets := []tier.Get{{Key: keyOf("a")}}
	l.Get(ctx, gets)
	require.ErrorIs(t, gets[0].Err, context.Canceled)
	require.ErrorIs(t, tryPut(ctx, l, object("b", 1))[0], context.Canceled)
	require.ErrorIs(t, l.Stat(ctx, []tier.Key{keyOf("a")})[0].Err, context.Canceled)
	require.ErrorIs(t, l.Delete(ctx, []tier.Key{keyOf("a")})[0], context.Canceled)
	for _, err := range l.List(ctx, "") {
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := Open(ctx, Options{URL: "redis://127.0.0.1:1"})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, get(t, l, "a").Err)
	require.ErrorIs(t, get(t, l, "b").Err, tier.ErrNotFound)
}

// Objects end after their time, which is the server's.
func TestTTL(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr() + "?ttl=1h&prefix=p:"})
	put(t, l, object("a", 1))
	ttl, err := strconv.Atoi(s.Do("pttl", "p:space:a"))
	require.NoError(t, err)
	require.InDelta(t, time.Hour.Milliseconds(), ttl, 120_000)
	s.Do("pexpire", "p:space:a", "1")
	s.Wait("0", "exists", "p:space:a")
	require.ErrorIs(t, get(t, l, "a").Err, tier.ErrNotFound)
	put(t, l, object("a", 1))
	require.NoError(t, get(t, l, "a").Err)
}
