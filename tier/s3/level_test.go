package s3

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/internal/s3test"
	"github.com/ringcache/ringcache/tier"
)

func TestMain(m *testing.M) {
	// Random histories take time with a server: 15 of them, unless the command line has a number.
	if err := flag.Set("rapid.checks", "15"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// options are those of a store that works, on a busy machine.
func options(url string) Options {
	return Options{URL: url, AccessKey: s3test.Access, SecretKey: s3test.Secret, Timeout: 2 * time.Minute}
}

// open opens a level that ends with the test.
func open(t testing.TB, o Options) *Level {
	t.Helper()
	l, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.True(t, l.calls.Idle(), "all bytes in flight were given back")
		require.NoError(t, l.Close())
	})
	return l
}

// start opens a level of a store in memory.
func start(t testing.TB) (*s3test.Fake, *s3test.Faults, *Level) {
	t.Helper()
	fake := s3test.NewFake()
	faults := s3test.NewFaults(t, fake)
	return fake, faults, open(t, options(faults.URL("p")))
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

func put(t testing.TB, l *Level, objects ...tier.Object) {
	t.Helper()
	for i, err := range tryPut(t.Context(), l, objects...) {
		require.NoError(t, err, objects[i].Key)
	}
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

// TestPutAndGet: what was put comes back with its whole description, at sizes around those at which the way
// changes, by every way.
func TestPutAndGet(t *testing.T) {
	fake := s3test.NewFake()
	o := options(s3test.NewFaults(t, fake).URL("a b/c"))
	o.PartSize = minPart
	l := open(t, o)
	one := headFixed + len("space") + 7 // the head of an object whose name has 7 digits
	sizes := []int{1000000, minPart - one - 1, minPart - one, minPart - one + 1, 2*minPart - one, 2*minPart - one + 1,
		multipart*minPart - one, multipart*minPart - one + 1, 5*minPart + 3, streamPart - one, streamPart - one + 1}
	objects := []tier.Object{object("0", 0), object("1", 1)}
	for i, size := range sizes {
		objects = append(objects, object(fmt.Sprintf("%03d-%03d", i, size%1000), size))
		if o := &objects[len(objects)-1]; i%2 == 1 {
			o.Parent, o.Tenant, o.Cost = strings.Repeat("p", tier.MaxName), strings.Repeat("t", tier.MaxTenant), time.Second
			o.Note = content("note", tier.MaxNote)
		}
	}
	put(t, l, objects...)
	require.Zero(t, fake.Uploads())
	writes := fake.Calls(http.MethodPut)
	put(t, l, objects[:4]...) // is there already
	require.Equal(t, writes+4, fake.Calls(http.MethodPut))
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
			if memory[i] != nil {
				return nil, errors.New("Into was called twice")
			}
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
		require.True(t, bytes.Equal(want, buffers[i].Bytes()), o.Name)
		require.Nil(t, to[i].Bytes)
	}
	require.Equal(t, tier.Usage{Objects: -1, Bytes: -1, Evicted: -1}, l.Usage())
	for i, err := range l.Delete(t.Context(), append(wanted, keyOf("none"))) {
		if i == len(objects) {
			require.ErrorIs(t, err, tier.ErrNotFound)
			continue
		}
		require.NoError(t, err, i)
	}
	require.Empty(t, fake.Keys())
}

// TestKeys: what a key looks like, and that texts of any kind have keys of their own that every store takes.
func TestKeys(t *testing.T) {
	s := settings{target: target{prefix: "p/"}}
	for want, k := range map[string]tier.Key{
		"p/model/abc-1_2.x":   {Space: "model", Name: "abc-1_2.x"},
		"p/!/!2E.":            {Name: ".."},
		"p/a!2Fb!20c/!21h!FF": {Space: "a/b c", Name: "!h\xff"},
	} {
		require.Equal(t, want, s.keyOf(k))
	}
	long := s.keyOf(tier.Key{Space: strings.Repeat("s", tier.MaxSpace), Name: strings.Repeat("/", tier.MaxName)})
	require.Len(t, long, len("p/!h/!h")+2*64)
	seen := map[string]string{}
	for range 20_000 {
		text := make([]byte, rand.IntN(4)+rand.IntN(2)*rand.IntN(300))
		for i := range text {
			text[i] = "!h./%AF2\xff0"[rand.IntN(10)]
		}
		key := keyText(string(text))
		require.LessOrEqual(t, len(key), maxText)
		require.NotContains(t, key, "/")
		require.False(t, strings.HasPrefix(key, "."))
		if before, ok := seen[key]; ok {
			require.Equal(t, before, string(text))
		}
		seen[key] = string(text)
	}
}

func TestCombine(t *testing.T) {
	for range 200 {
		a, b := noise()[:rand.IntN(5000)], noise()[5000:5000+rand.IntN(100_000)]
		want := crc32.Update(crc32.Checksum(a, castagnoli), castagnoli, b)
		require.Equal(t, want, combine(crc32.Checksum(a, castagnoli), crc32.Checksum(b, castagnoli), int64(len(b))))
	}
}

// TestHeadOfAnyBytes: what is not an object is never one, and nothing fails otherwise.
func TestHeadOfAnyBytes(t *testing.T) {
	l := &Level{settings: settings{target: target{prefix: "p/"}}}
	o := object("a", 100)
	o.Note = []byte("note")
	value := append(makeHead(o, 7), make([]byte, 100)...)
	read := func(v []byte) error {
		_, err := l.readHead(bytes.NewReader(v), l.settings.keyOf(o.Key), int64(len(v)), maxHead)
		return err
	}
	require.NoError(t, read(value))
	for n := range value { // shorter
		require.True(t, isMiss(read(value[:n])), n)
	}
	require.True(t, isMiss(read(append(value, 0))), "longer")
	for i := range headLength(o) {
		for bit := range 8 {
			bad := bytes.Clone(value)
			bad[i] ^= 1 << bit
			require.True(t, isMiss(read(bad)), "byte %d bit %d", i, bit)
		}
	}
	_, err := l.readHead(bytes.NewReader(value), "p/space/b", int64(len(value)), maxHead)
	require.ErrorAs(t, err, new(errForeign), "under another key")
}

// TestForeignObject: another program's object is a miss that is counted, and stays.
func TestForeignObject(t *testing.T) {
	fake, _, l := start(t)
	text := []byte(strings.Repeat("not ours ", 100))
	key := l.settings.keyOf(keyOf("a"))
	newer := makeHead(object("b", 0), 0)
	newer[headAtVersion] = 2
	fake.Set(key, text)
	fake.Set(l.settings.keyOf(keyOf("b")), newer)
	fake.Set("p/deep/er/x", text)
	fake.Set("p/top", text)
	for _, name := range []string{"a", "b"} {
		err := get(t, l, name).Err
		require.ErrorIs(t, err, tier.ErrNotFound)
		require.NotErrorIs(t, err, tier.ErrCorrupt)
		require.ErrorContains(t, err, "another program's")
		require.ErrorIs(t, l.Stat(t.Context(), []tier.Key{keyOf(name)})[0].Err, tier.ErrNotFound)
		require.ErrorIs(t, l.Delete(t.Context(), []tier.Key{keyOf(name)})[0], tier.ErrNotFound)
		require.ErrorIs(t, tryPut(t.Context(), l, object(name, 5))[0], fs.ErrExist)
	}
	require.EqualValues(t, 8, l.Usage().Corrupt)
	for o, err := range l.List(t.Context(), "") {
		require.Fail(t, "the list has an object", "%v: %v", o.Key, err)
	}
	require.Equal(t, text, fake.Get(key))
	require.Len(t, fake.Keys(), 4)
}

// TestDamage: an object that is damaged where it is kept is removed, and can be put again.
func TestDamage(t *testing.T) {
	fake, _, l := start(t)
	const size = 5 << 20
	head := headLength(object("a", size))
	key := l.settings.keyOf(keyOf("a"))
	corrupted := int64(0)
	for name, damage := range map[string]func([]byte) []byte{
		"head":      func(v []byte) []byte { v[headAtCost] ^= 1; return v },
		"byte":      func(v []byte) []byte { v[head+size/2] ^= 1; return v },
		"last byte": func(v []byte) []byte { v[len(v)-1] ^= 1; return v },
		"cut":       func(v []byte) []byte { return v[:len(v)-1] },
		"longer":    func(v []byte) []byte { return append(v, 0) },
		"only head": func(v []byte) []byte { return v[:head] },
		"half head": func(v []byte) []byte { return v[:head/2] },
		"empty":     func(v []byte) []byte { return v[:0:0] },
	} {
		for _, way := range []string{"bytes", "to"} {
			put(t, l, object("a", size))
			fake.Set(key, append([]byte{}, damage(fake.Get(key))...))
			gets := []tier.Get{{Key: keyOf("a")}}
			if way == "to" {
				gets[0].To = io.Discard
			}
			l.Get(t.Context(), gets)
			require.ErrorIs(t, gets[0].Err, tier.ErrNotFound, name)
			require.ErrorIs(t, gets[0].Err, tier.ErrCorrupt, name)
			require.Empty(t, fake.Keys(), "%s: it was removed", name)
			corrupted++
			require.Equal(t, corrupted, l.Usage().Corrupt)
		}
		if name == "head" || name == "cut" || name == "empty" { // a Put finds damage that is in the head
			put(t, l, object("a", size))
			fake.Set(key, append([]byte{}, damage(fake.Get(key))...))
			put(t, l, object("a", size))
			corrupted++
			require.NoError(t, get(t, l, "a").Err)
			fake.Set(key, nil)
		}
	}
}

// TestConditions: what the store has stays as it is, also of a store that does not know conditions and says so.
func TestConditions(t *testing.T) {
	for _, knows := range []bool{true, false} {
		fake, _, l := start(t)
		fake.NoConditions = !knows
		put(t, l, object("a", 1000))
		before := fake.Get(l.settings.keyOf(keyOf("a")))
		o := object("a", 1000)
		o.Note = []byte("another description")
		put(t, l, o)
		require.Equal(t, before, fake.Get(l.settings.keyOf(keyOf("a"))))
		require.Equal(t, !knows, l.unconditional.Load())
	}
	fake, _, l := start(t)
	fake.Ignore = true
	put(t, l, object("a", 1000))
	put(t, l, object("a", 1000))
	require.NoError(t, get(t, l, "a").Err)
}

// TestOrder: a parent is stored before its children, and a stream when all before it has been.
func TestOrder(t *testing.T) {
	fake, faults, l := start(t)
	var mu sync.Mutex
	var order []string
	faults.Do(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodPut {
			mu.Lock()
			order = append(order, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
			mu.Unlock()
		}
		return false
	})
	var chain []tier.Object
	for i := range 20 {
		o := object(strconv.Itoa(i), 100)
		if i > 0 {
			o.Parent = strconv.Itoa(i - 1)
		}
		chain = append(chain, o)
	}
	put(t, l, chain...)
	require.Len(t, order, 20)
	for i, name := range order {
		require.Equal(t, strconv.Itoa(i), name)
	}
	puts := []tier.Put{
		{Object: object("x", 1), Bytes: content("x", 1)}, {Object: object("y", 1), Bytes: content("y", 1)},
		{Object: object("z", 1), From: io.LimitReader(readerFunc(func(p []byte) (int, error) {
			if fake.Get("p/space/x") == nil || fake.Get("p/space/y") == nil {
				return 0, errors.New("what is in front of it has not been sent")
			}
			return copy(p, content("z", 1)), nil
		}), 1)},
	}
	l.Put(t.Context(), puts)
	for _, p := range puts {
		require.NoError(t, p.Err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestBytesInFlight: many large objects are transferred within the bound, and given back.
func TestBytesInFlight(t *testing.T) {
	faults := s3test.NewFaults(t, s3test.NewFake())
	o := options(faults.URL("p"))
	o.MaxBytesInFlight, o.PartSize = 12<<20, minPart
	l := open(t, o)
	var objects []tier.Object
	for i := range 6 {
		objects = append(objects, object(fmt.Sprint("large ", i), 11<<20+i))
	}
	put(t, l, objects...)
	gets := make([]tier.Get, len(objects))
	for i, o := range objects {
		gets[i].Key = o.Key
	}
	l.Get(t.Context(), gets)
	for _, g := range gets {
		require.NoError(t, g.Err)
		require.True(t, bytes.Equal(content(g.Key.Name, int(g.Object.Size)), g.Bytes))
	}
	require.NoError(t, tryPut(t.Context(), l, tier.Object{Key: keyOf("huge"), Size: 0})[0])
	p := []tier.Put{{Object: object("huge", largest), From: readerFunc(func([]byte) (int, error) { return 0, errors.New("read") })}}
	l.Put(t.Context(), p)
	require.ErrorIs(t, p[0].Err, tier.ErrTooLarge)
}

// TestListMany lists more than a page, of one space and of all.
func TestListMany(t *testing.T) {
	fake, _, l := start(t)
	want := map[string]int{"a": page + 7, "a-b": 3, "a/b": 2, "": 4}
	for space, n := range want {
		for i := range n {
			o := tier.Object{Key: tier.Key{Space: space, Name: strconv.Itoa(i)}}
			fake.Set(l.settings.keyOf(o.Key), makeHead(o, 0))
		}
	}
	got := map[string]int{}
	for o, err := range l.List(t.Context(), "") {
		require.NoError(t, err)
		got[o.Space]++
	}
	require.Equal(t, want, got)
	n := 0
	for o, err := range l.List(t.Context(), "a") {
		require.NoError(t, err)
		require.Equal(t, "a", o.Space)
		n++
	}
	require.Equal(t, want["a"], n)
}
