package redis

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// metadataOf is LMCache's RemoteMetadata of bytes in one dimension.
func metadataOf(size int) []byte {
	b := make([]byte, 0, 28)
	for _, n := range []int{size, 1, 6, size, 1, 1, 1} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// row is a key that lmcache wrote.
type row struct {
	Key    string
	Bytes  int
	SHA256 string
	First  int    // the bytes count upwards from it
	Hex    string // or are these
}

func (r row) value(t *testing.T) string {
	b, err := hex.DecodeString(r.Hex)
	require.NoError(t, err)
	if r.Hex == "" {
		for i := range r.Bytes {
			b = append(b, byte(r.First+i))
		}
	}
	sum := sha256.Sum256(b)
	require.Equal(t, r.SHA256, hex.EncodeToString(sum[:]))
	return string(b)
}

// What lmcache's own connectors wrote is read as objects, and the same objects, put by the level, are the
// same keys and values.
func TestGoldenLMCache(t *testing.T) {
	raws, err := os.ReadFile("testdata/lmcache.json")
	require.NoError(t, err)
	var golden map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raws, &golden))
	checked := 0
	for section, layout := range map[string]Layout{"redis": LMCache{Space: "s"}, "resp": RESP{Space: "s", Size: 512},
		"resp_l2_adapter": RESP{Space: "s"}} {
		var rows []row
		require.NoError(t, json.Unmarshal(golden[section], &rows))
		require.NotEmpty(t, rows)
		s := redistest.Start(t)
		c := raw(t, s)
		l := open(t, Options{URL: "redis://" + s.Addr(), Layout: layout})
		want := map[string]string{}
		for _, r := range rows {
			want[r.Key] = r.value(t)
			require.NoError(t, c.Set(t.Context(), r.Key, want[r.Key], 0).Err())
		}
		var puts []tier.Put
		for o, err := range l.List(t.Context(), "s") {
			require.NoError(t, err)
			g := []tier.Get{{Key: o.Key}}
			l.Get(t.Context(), g)
			require.NoError(t, g[0].Err)
			require.Equal(t, o, g[0].Object)
			body := o.Name
			if section == "redis" {
				body += "kv_bytes"
				require.Equal(t, want[o.Name+"metadata"], string(o.Note))
			}
			require.Equal(t, want[body], string(g[0].Bytes))
			puts = append(puts, tier.Put{Object: o, Bytes: g[0].Bytes})
		}
		if section == "redis" {
			require.Len(t, puts, len(rows)/2)
		} else {
			require.Len(t, puts, len(rows))
		}
		require.NoError(t, c.FlushAll(t.Context()).Err())
		l.Put(t.Context(), puts)
		for _, p := range puts {
			require.NoError(t, p.Err)
		}
		keys := c.Keys(t.Context(), "*").Val()
		require.Len(t, keys, len(want))
		for _, k := range keys {
			require.Equal(t, want[k], c.Get(t.Context(), k).Val(), k)
			require.EqualValues(t, -1, c.TTL(t.Context(), k).Val(), "lmcache sets no time to live")
			checked++
		}
	}
	t.Logf("lmcache 0.5.6: %d keys, 0 differences", checked)
}

func TestLMCache(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr() + "?layout=lmcache"})
	testLMCache(t, l)
}

// testLMCache tests pairs of keys, also halves of them.
func testLMCache(t *testing.T, l *Level) {
	ctx := t.Context()
	o := tier.Object{Key: tier.Key{Name: "model@1@0@abc@half"}, Size: 5000, Note: metadataOf(5000)}
	const metadata, kv = "model@1@0@abc@halfmetadata", "model@1@0@abc@halfkv_bytes"
	bytes5000 := content("x", 5000)
	store := func() {
		t.Helper()
		p := []tier.Put{{Object: o, Bytes: bytes5000}}
		l.Put(ctx, p)
		require.NoError(t, p[0].Err)
	}
	exists := func(key string) bool { return l.client.Exists(ctx, key).Val() == 1 }
	answer := func() error {
		g := []tier.Get{{Key: o.Key}}
		l.Get(ctx, g)
		if g[0].Err == nil {
			require.True(t, bytes.Equal(bytes5000, g[0].Bytes))
			require.Equal(t, o, g[0].Object)
		}
		return g[0].Err
	}
	store()
	store()
	require.NoError(t, answer())

	// Metadata without bytes: a miss, and the metadata go.
	l.client.Del(ctx, kv)
	err := answer()
	require.ErrorIs(t, err, tier.ErrNotFound)
	require.ErrorIs(t, err, tier.ErrCorrupt)
	require.False(t, exists(metadata))
	store()
	l.client.Del(ctx, kv)
	store() // repairs it as well
	require.NoError(t, answer())

	// Bytes without metadata: a miss, and the bytes stay, since somebody may be writing.
	l.client.Del(ctx, metadata)
	err = answer()
	require.ErrorIs(t, err, tier.ErrNotFound)
	require.NotErrorIs(t, err, tier.ErrCorrupt)
	require.True(t, exists(kv))
	l.client.Set(ctx, kv, "of an older object", 0)
	store()
	require.NoError(t, answer())

	// Another length than that of the metadata.
	for _, bad := range []string{"short", strings.Repeat("x", 5001), ""} {
		l.client.Set(ctx, kv, bad, 0)
		require.ErrorIs(t, l.Stat(ctx, []tier.Key{o.Key})[0].Err, tier.ErrCorrupt)
		require.False(t, exists(metadata))
		store()
		require.NoError(t, answer())
	}
	// Metadata of a wrong form are another program's: a miss, and they stay. Put writes over them.
	for n := range 50 {
		if n == 28 || n == 48 {
			continue
		}
		l.client.Set(ctx, metadata, string(append(metadataOf(5000), make([]byte, 40)...)[:n]), 0)
		err := answer()
		require.ErrorIs(t, err, tier.ErrNotFound, n)
		require.NotErrorIs(t, err, tier.ErrCorrupt, n)
		require.True(t, exists(metadata), n)
		store()
		require.NoError(t, answer())
	}
	for _, bad := range []string{strings.Repeat("\xff", 28), strings.Repeat("\x00", 28),
		strings.Repeat("{\"a\":1}", 4)[:28]} {
		l.client.Set(ctx, metadata, bad, 0)
		err := answer()
		require.ErrorIs(t, err, tier.ErrNotFound)
		require.NotErrorIs(t, err, tier.ErrCorrupt)
		require.True(t, exists(metadata))
		store()
		require.NoError(t, answer())
	}

	// Two groups of tensors.
	two := o
	two.Name, two.Note = "two", append(metadataOf(5000), make([]byte, 20)...)
	p := []tier.Put{{Object: two, Bytes: bytes5000}}
	l.Put(ctx, p)
	require.NoError(t, p[0].Err)
	require.Equal(t, two, l.Stat(ctx, []tier.Key{two.Key})[0].Object)

	// What the layout can't keep.
	for _, bad := range []tier.Object{
		{Key: tier.Key{Name: "n"}, Size: 5000},
		{Key: tier.Key{Name: "n"}, Size: 5000, Note: metadataOf(4999)},
		{Key: tier.Key{Name: "n"}, Size: 0, Note: metadataOf(0)},
		{Key: tier.Key{Name: "n"}, Size: 5000, Note: metadataOf(5000)[:27]},
		{Key: tier.Key{Name: "n"}, Size: 5000, Note: append(metadataOf(5000)[:24], 0xff, 0xff, 0xff, 0xff)},
		{Key: tier.Key{Space: "other", Name: "n"}, Size: 5000, Note: metadataOf(5000)},
	} {
		p := []tier.Put{{Object: bad, Bytes: make([]byte, bad.Size)}}
		l.Put(ctx, p)
		require.ErrorIs(t, p[0].Err, fs.ErrInvalid)
		require.False(t, exists("nmetadata"))
		require.False(t, exists("nkv_bytes"))
	}
	other := tier.Key{Space: "other", Name: o.Name}
	require.ErrorIs(t, l.Stat(ctx, []tier.Key{other})[0].Err, tier.ErrNotFound)
	require.ErrorIs(t, l.Delete(ctx, []tier.Key{other})[0], tier.ErrNotFound)
	require.NoError(t, answer())

	listed := 0
	for got, err := range l.List(ctx, "") {
		require.NoError(t, err)
		require.Contains(t, []string{o.Name, "two"}, got.Name)
		listed++
	}
	require.Equal(t, 2, listed)
	for range l.List(ctx, "other") {
		t.Fatal("there is nothing of other spaces")
	}
	for _, err := range l.Delete(ctx, []tier.Key{o.Key, two.Key}) {
		require.NoError(t, err)
	}
	require.False(t, exists(metadata) || exists(kv) || exists("twometadata") || exists("twokv_bytes"))
}

func TestRESP(t *testing.T) {
	s := redistest.Start(t)
	c := raw(t, s)
	l := open(t, Options{URL: "redis://" + s.Addr() + "?layout=resp&size=512"})
	k := tier.Key{Name: "model@01000100@0@aa"}
	p := []tier.Put{
		{Object: tier.Object{Key: k, Size: 512}, Bytes: content("x", 512)},
		{Object: tier.Object{Key: tier.Key{Name: "n"}, Size: 511}, Bytes: content("x", 511)},
		{Object: tier.Object{Key: tier.Key{Name: "n"}}, Bytes: nil},
	}
	l.Put(t.Context(), p)
	require.NoError(t, p[0].Err)
	require.ErrorIs(t, p[1].Err, fs.ErrInvalid)
	require.ErrorIs(t, p[2].Err, fs.ErrInvalid)
	require.Equal(t, string(content("x", 512)), c.Get(t.Context(), k.Name).Val())
	// A value of another size is another program's: a miss, and it stays. Put writes over it.
	for _, size := range []int{1, 511, 513, 100_000} {
		c.Set(t.Context(), k.Name, content("y", size), 0)
		g := []tier.Get{{Key: k}}
		l.Get(t.Context(), g)
		require.ErrorIs(t, g[0].Err, tier.ErrNotFound)
		require.NotErrorIs(t, g[0].Err, tier.ErrCorrupt)
		require.Equal(t, string(content("y", size)), c.Get(t.Context(), k.Name).Val())
		again := p[:1]
		l.Put(t.Context(), again)
		require.NoError(t, again[0].Err)
		require.Equal(t, string(content("x", 512)), c.Get(t.Context(), k.Name).Val())
	}
	require.Zero(t, l.Usage().Corrupt)
}

// Keys of other programs, on a server that both use, stay what they are, by List, Stat and Get.
func TestKeysOfOtherPrograms(t *testing.T) {
	for name, layout := range map[string]Layout{"lmcache": LMCache{}, "resp": RESP{},
		"resp with a size": RESP{Size: 512}} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			l := open(t, Options{URL: "redis://" + s.Addr(), Layout: layout})
			for _, set := range [][]string{
				{"hset", "session:7", "user", "anna"}, {"hset", "video:7:metadata", "title", "x"},
				{"set", "video:8:metadata", "{}"}, {"rpush", "queue", "x"},
				{"set", "text", "y"}, {"set", "video:9:metadata", strings.Repeat("x", 28)},
				{"set", "video:9:kv_bytes", "x"}, {"sadd", "video:10:kv_bytes", "x"},
			} {
				s.Do(set...)
			}
			c := raw(t, s)
			require.NoError(t, c.Set(t.Context(), "video:10:metadata", metadataOf(1), 0).Err())
			dump := func() map[string]string {
				values := map[string]string{}
				for _, k := range c.Keys(t.Context(), "*").Val() {
					values[k] = c.Dump(t.Context(), k).Val()
				}
				return values
			}
			before := dump()
			require.Len(t, before, 9)
			for o, err := range l.List(t.Context(), "") {
				require.NoError(t, err)
				require.Equal(t, RESP{}, layout, o.Name)
				require.Equal(t, "text", o.Name)
			}
			require.Equal(t, before, dump(), "after List")
			for k := range before {
				for _, name := range []string{k,
					strings.TrimSuffix(strings.TrimSuffix(k, suffixMetadata), suffixBytes)} {
					key := tier.Key{Name: name}
					var to bytes.Buffer
					g := []tier.Get{{Key: key}, {Key: key, To: &to}}
					l.Get(t.Context(), g)
					for _, err := range []error{l.Stat(t.Context(), []tier.Key{key})[0].Err, g[0].Err, g[1].Err} {
						if _, all := layout.(RESP); err != nil || !all {
							require.ErrorIs(t, err, tier.ErrNotFound, name)
							require.NotErrorIs(t, err, tier.ErrCorrupt, name)
						}
					}
				}
			}
			require.Equal(t, before, dump(), "after Stat and Get")
			require.Zero(t, l.Usage().Corrupt)
		})
	}
}

// Half an object of LMCache's layout is not in a list, and is still there afterwards: only who asks for it
// has it removed.
func TestListRemovesNothing(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr() + "?layout=lmcache"})
	c := raw(t, s)
	require.NoError(t, c.MSet(t.Context(), "xmetadata", metadataOf(10), "ymetadata", metadataOf(10), "ykv_bytes",
		"short").Err())
	for o, err := range l.List(t.Context(), "") {
		t.Fatal(o, err)
	}
	require.EqualValues(t, 3, c.DBSize(t.Context()).Val())
	require.Zero(t, l.Usage().Corrupt)
	for _, f := range l.Stat(t.Context(), []tier.Key{{Name: "x"}, {Name: "y"}}) {
		require.ErrorIs(t, f.Err, tier.ErrCorrupt)
	}
	require.Equal(t, []string{"ykv_bytes"}, c.Keys(t.Context(), "*").Val())
}

// cutOff lets the first SET of a key with a suffix reach the server, calls then, and loses the answer.
type cutOff struct {
	suffix string
	then   func()
}

func (c *cutOff) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (c *cutOff) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }
func (c *cutOff) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		if key, ok := cmds[0].Args()[1].(string); ok && c.then != nil && cmds[0].Name() == "set" &&
			strings.HasSuffix(key, c.suffix) {
			c.then()
			c.then = nil
			cmds[0].SetErr(context.DeadlineExceeded)
			return context.DeadlineExceeded
		}
		return err
	}
}

// The server has the metadata, and its answer is lost: the pair is whole, another writer was told so, and Put
// leaves it.
func TestLostAnswerToMetadata(t *testing.T) {
	s := redistest.Start(t)
	o := Options{URL: "redis://" + s.Addr() + "?layout=lmcache", Failures: 3}
	l, other := open(t, o), open(t, o)
	pair := tier.Object{Key: tier.Key{Name: "x"}, Size: 10, Note: metadataOf(10)}
	theirs := []tier.Put{{Object: pair, Bytes: content("x", 10)}}
	l.client.AddHook(&cutOff{suffixMetadata, func() { other.Put(t.Context(), theirs) }})
	p := []tier.Put{{Object: pair, Bytes: content("x", 10)}}
	l.Put(t.Context(), p)
	require.ErrorIs(t, p[0].Err, tier.ErrUnavailable)
	require.NoError(t, theirs[0].Err)
	g := []tier.Get{{Key: pair.Key}}
	other.Get(t.Context(), g)
	require.NoError(t, g[0].Err)
	require.Equal(t, content("x", 10), g[0].Bytes)
}

// The server refuses the metadata, and has those of another writer by then: the bytes are a part of that
// writer's pair.
func TestRefusedMetadataOfAWholePair(t *testing.T) {
	s := redistest.Start(t)
	s.Do("acl", "setuser", "half", "on", ">pw", "+@all", "%RW~*kv_bytes", "%R~*metadata")
	l, other := open(t, Options{URL: "redis://half:pw@" + s.Addr() + "?layout=lmcache"}),
		open(t, Options{URL: "redis://" + s.Addr() + "?layout=lmcache"})
	pair := tier.Object{Key: tier.Key{Name: "x"}, Size: 10, Note: metadataOf(10)}
	theirs := []tier.Put{{Object: pair, Bytes: content("x", 10)}}
	p := []tier.Put{{Object: pair, From: readerFunc(func(b []byte) (int, error) { // behind the look
		if theirs[0].Object.Size == 0 {
			return 0, io.EOF
		}
		other.Put(t.Context(), theirs)
		require.NoError(t, theirs[0].Err)
		theirs[0].Object.Size = 0
		return copy(b, content("x", 10)), nil
	})}}
	l.Put(t.Context(), p)
	require.ErrorIs(t, p[0].Err, fs.ErrPermission)
	g := []tier.Get{{Key: pair.Key}}
	other.Get(t.Context(), g)
	require.NoError(t, g[0].Err)
}

// Another value takes the place of the one that is being read: the bytes are of one of them, by every way of
// reading, at sizes at which the way changes.
func TestReplacedValueIsNotMixed(t *testing.T) {
	for _, layout := range []Layout{RESP{}, LMCache{}} {
		s := redistest.Start(t)
		l := open(t, Options{URL: "redis://" + s.Addr(), Layout: layout})
		c := raw(t, s)
		key := "x"
		if _, pair := layout.(LMCache); pair {
			key += suffixBytes
		}
		for _, size := range []int{100, probeGet - 1, probeGet, probeGet + 1, 64 << 10, 100 << 10, 2*streamPart + 5} {
			a, b := bytes.Repeat([]byte("a"), size), bytes.Repeat([]byte("b"), size)
			set := func(value []byte) {
				require.NoError(t, c.Set(t.Context(), "xmetadata", metadataOf(size), 0).Err())
				require.NoError(t, c.Set(t.Context(), key, value, 0).Err())
			}
			set(a)
			into := []tier.Get{{Key: tier.Key{Name: "x"}, Into: func(o tier.Object) ([]byte, error) {
				set(b)
				return make([]byte, o.Size), nil
			}}}
			l.Get(t.Context(), into)
			require.NoError(t, into[0].Err)
			require.True(t, bytes.Equal(into[0].Bytes, a) || bytes.Equal(into[0].Bytes, b), "%d: %d of a", size,
				bytes.Count(into[0].Bytes, []byte("a")))
			set(a)
			var got []byte
			to := []tier.Get{{Key: tier.Key{Name: "x"}, To: writerFunc(func(p []byte) (int, error) {
				set(b)
				got = append(got, p...)
				return len(p), nil
			})}}
			l.Get(t.Context(), to)
			require.NoError(t, to[0].Err)
			require.Nil(t, to[0].Bytes)
			require.True(t, bytes.Equal(got, a) || bytes.Equal(got, b), "%d: %d of a", size,
				bytes.Count(got, []byte("a")))
		}
		require.True(t, l.calls.Idle(), "everything was given back")
	}
}

// An object that is larger than the bytes in flight is written to a stream all the same, and a stream that
// fails has its error.
func TestWholeObjectToAStream(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr(), Layout: RESP{}, MaxBytesInFlight: 1000})
	p := []tier.Put{{Object: tier.Object{Key: tier.Key{Name: "x"}, Size: 100_000}, Bytes: content("x", 100_000)}}
	l.Put(t.Context(), p)
	require.NoError(t, p[0].Err)
	var to bytes.Buffer
	no := errors.New("no")
	g := []tier.Get{{Key: tier.Key{Name: "x"}, To: &to}, {Key: tier.Key{Name: "x"}, To: errorWriter{no}}}
	l.Get(t.Context(), g)
	require.NoError(t, g[0].Err)
	require.Equal(t, p[0].Object, g[0].Object)
	require.True(t, bytes.Equal(content("x", 100_000), to.Bytes()))
	require.ErrorIs(t, g[1].Err, no)
	require.Zero(t, g[1].Object)
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A value that has grown since its head was read is not the beginning of itself: it is read again, as what it
// is now, or is a miss.
func TestGrownValueIsNotCut(t *testing.T) {
	for _, layout := range []Layout{RESP{}, LMCache{}} {
		s := redistest.Start(t)
		l := open(t, Options{URL: "redis://" + s.Addr(), Layout: layout})
		c := raw(t, s)
		key := "x"
		if _, pair := layout.(LMCache); pair {
			key += suffixBytes
		}
		for _, size := range []int{1000, 64 << 10, 5 << 20} {
			for _, grown := range []int{size + 1, size + 2, 2 * size} {
				set := func(letter string, size int) {
					require.NoError(t, c.Set(t.Context(), "xmetadata", metadataOf(size), 0).Err())
					require.NoError(t, c.Set(t.Context(), key, strings.Repeat(letter, size), 0).Err())
				}
				set("a", size)
				k := tier.Key{Name: "x"}
				g := []tier.Get{{Key: k, Into: func(o tier.Object) ([]byte, error) {
					set("b", grown)
					return make([]byte, o.Size), nil
				}}}
				l.Get(t.Context(), g)
				if g[0].Err == nil { // a small value came whole with its length
					require.True(t, bytes.Equal(bytes.Repeat([]byte("a"), size), g[0].Bytes), "%d, then %d", size,
						grown)
				} else {
					require.ErrorIs(t, g[0].Err, tier.ErrNotFound)
					require.NotErrorIs(t, g[0].Err, tier.ErrCorrupt)
				}
				for _, to := range []*bytes.Buffer{nil, {}} { // and nothing was removed
					g = []tier.Get{{Key: k}}
					if to != nil {
						g[0].To = to
					}
					l.Get(t.Context(), g)
					require.NoError(t, g[0].Err)
					got := g[0].Bytes
					if to != nil {
						got = to.Bytes()
					}
					require.True(t, bytes.Equal(bytes.Repeat([]byte("b"), grown), got), "%d, then %d", size, grown)
					require.EqualValues(t, grown, g[0].Object.Size)
				}
			}
		}
		// Bytes that grew under metadata that did not are damage.
		if key != "x" {
			require.NoError(t, c.MSet(t.Context(), "xmetadata", metadataOf(1000), key, content("x", 1000)).Err())
			g := []tier.Get{{Key: tier.Key{Name: "x"}, Into: func(o tier.Object) ([]byte, error) {
				return make([]byte, o.Size), c.Append(t.Context(), key, "y").Err()
			}}}
			l.Get(t.Context(), g)
			require.ErrorIs(t, g[0].Err, tier.ErrCorrupt)
			require.Zero(t, c.Exists(t.Context(), "xmetadata").Val())
		}
	}
}

// Objects without a checksum that are read into their callers' memory, many at a time.
func TestManyIntoOfLMCache(t *testing.T) {
	s := redistest.Start(t)
	l := open(t, Options{URL: "redis://" + s.Addr(), Layout: LMCache{}})
	var puts []tier.Put
	var gets []tier.Get
	for i := range 300 {
		name, size := fmt.Sprint("n", i), 1+i*i
		puts = append(puts, tier.Put{Object: tier.Object{Key: tier.Key{Name: name}, Size: int64(size),
			Note: metadataOf(size)}, Bytes: content(name, size)})
		gets = append(gets, tier.Get{Key: tier.Key{Name: name}, Into: func(o tier.Object) ([]byte, error) {
			return make([]byte, o.Size), nil
		}})
	}
	l.Put(t.Context(), puts)
	l.Get(t.Context(), gets)
	for i, g := range gets {
		require.NoError(t, puts[i].Err)
		require.NoError(t, g.Err)
		require.True(t, bytes.Equal(puts[i].Bytes, g.Bytes), g.Key.Name)
	}
}
