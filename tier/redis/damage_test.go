package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// raw is a client for what tests do behind the level's back.
func raw(t testing.TB, s *redistest.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr(), Protocol: 2})
	t.Cleanup(func() { c.Close() })
	return c
}

// Every byte of a value changed, the value cut at every byte, longer, of another type, of another key: a miss
// with ErrCorrupt, by every way of reading, and the value is gone.
func TestDamageOfEveryKind(t *testing.T) {
	s, l := start(t)
	c := raw(t, s)
	o := object("victim", 150)
	o.Parent, o.Tenant, o.Note, o.Cost = "parent", "tenant", []byte("note"), 5
	put(t, l, o)
	const key = "ringcache:space:victim"
	value, err := c.Get(t.Context(), key).Bytes()
	require.NoError(t, err)
	require.Len(t, value, headFixed+6+6+4+150)

	kinds, damage := 0, int64(0)
	check := func(what string, stat bool) {
		t.Helper()
		kinds++
		damage++
		switch {
		case stat && kinds%2 == 0: // heads are checked by Stat, too
			err = l.Stat(t.Context(), []tier.Key{o.Key})[0].Err
		case kinds%3 == 0:
			var to bytes.Buffer
			g := []tier.Get{{Key: o.Key, To: &to}}
			l.Get(t.Context(), g)
			err = g[0].Err
		default:
			err = get(t, l, "victim").Err
		}
		require.ErrorIs(t, err, tier.ErrNotFound, what)
		require.ErrorIs(t, err, tier.ErrCorrupt, what)
		require.Equal(t, damage, l.Usage().Corrupt, what)
		require.Zero(t, c.Exists(t.Context(), key).Val(), what)
	}
	for i := range value {
		for _, flip := range []byte{1, 0x80, 0xff, byte(1 + rand.IntN(255))} {
			bad := bytes.Clone(value)
			bad[i] ^= flip
			c.Set(t.Context(), key, bad, 0)
			check(fmt.Sprintf("byte %d ^ %#x", i, flip), i < headFixed+16)
		}
	}
	for n := 1; n < len(value); n++ {
		c.Set(t.Context(), key, value[:n], 0)
		check(fmt.Sprint("cut to ", n), true)
	}
	for range 500 {
		bad := bytes.Clone(value)
		for range 2 + rand.IntN(8) {
			bad[rand.IntN(len(bad))] = byte(rand.Int())
		}
		if bytes.Equal(bad, value) {
			continue
		}
		c.Set(t.Context(), key, bad, 0)
		check("many bytes", false)
	}
	c.Set(t.Context(), key, string(value)+"x", 0)
	check("longer", true)
	c.Set(t.Context(), key, strings.Repeat("x", 100_000), 0)
	check("something else", true)
	c.RPush(t.Context(), key, value)
	check("list", true)
	put(t, l, object("other", 150))
	require.NoError(t, c.Rename(t.Context(), "ringcache:space:other", key).Err())
	check("another key's", true)
	t.Logf("%d kinds of damage", kinds)

	c.Set(t.Context(), key, value, 0)
	require.NoError(t, get(t, l, "victim").Err)
}

// Bytes that did not come with the head.
func TestDamageOfLargeObjects(t *testing.T) {
	s, l := start(t)
	c := raw(t, s)
	o := object("victim", 5<<20)
	const key = "ringcache:space:victim"
	for i := range 8 {
		put(t, l, o)
		at := headFixed + rand.Int64N(o.Size)
		old := c.GetRange(t.Context(), key, at, at).Val()
		require.NoError(t, c.SetRange(t.Context(), key, at, string([]byte{old[0] ^ 1})).Err())
		g := []tier.Get{{Key: o.Key}}
		if i%2 == 0 {
			g[0].To = &bytes.Buffer{}
		}
		l.Get(t.Context(), g)
		require.ErrorIs(t, g[0].Err, tier.ErrCorrupt)
		require.Zero(t, c.Exists(t.Context(), key).Val())
	}
}

// Put finds damage in its way, in the head and of another type.
func TestPutReplacesDamage(t *testing.T) {
	s, l := start(t)
	c := raw(t, s)
	const key = "ringcache:space:a"
	for _, bad := range []string{"short", strings.Repeat("long", 100)} {
		c.Set(t.Context(), key, bad, 0)
		put(t, l, object("a", 10))
		require.NoError(t, get(t, l, "a").Err)
	}
	c.Del(t.Context(), key)
	c.HSet(t.Context(), key, "f", "v")
	put(t, l, object("a", 10))
	require.NoError(t, get(t, l, "a").Err)
}

// A value that was replaced by the right one, between the discovery of damage and the removal, stays.
func TestDropSparesTheNewerValue(t *testing.T) {
	s, l := start(t)
	c := raw(t, s)
	o := object("a", 100)
	put(t, l, o)
	const key = "ringcache:space:a"
	value := c.Get(t.Context(), key).Val()
	err := l.removeDamaged(t.Context(), o.Key, keys{key, key}, "was damaged before")
	require.ErrorIs(t, err, tier.ErrNotFound)
	require.NotErrorIs(t, err, tier.ErrCorrupt)
	require.NoError(t, get(t, l, "a").Err)

	// Writers replace damage by the right value, at any moment of the removals of others: what they wrote
	// last stays.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = l.Stat(ctx, []tier.Key{o.Key})
					g := []tier.Get{{Key: o.Key}}
					l.Get(ctx, g)
				}
			}
		})
	}
	for i := range 500 {
		bad := []byte(value)
		bad[rand.IntN(len(bad))] ^= 1
		c.Set(ctx, key, bad, 0)
		if i%3 == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
		c.Set(ctx, key, value, 0)
		for range 5 {
			require.Equal(t, value, c.Get(ctx, key).Val(), "round %d", i)
		}
	}
	close(stop)
	wg.Wait()
	require.NoError(t, ctx.Err())
}

// An object that is evicted and put again between its head and its bytes is read again, and is no damage.
func TestReplacedWhileItIsRead(t *testing.T) {
	s, l := start(t)
	c := raw(t, s)
	o := object("a", 100_000)
	put(t, l, o)
	tenant := ""
	for _, change := range []func(){
		func() { c.Del(t.Context(), "ringcache:space:a") },
		func() { // the same bytes with another head
			c.Del(t.Context(), "ringcache:space:a")
			other := o
			other.Tenant, tenant = "another tenant", "another tenant"
			put(t, l, other)
		},
		func() { // another size, which can't be: what was read is right all the same
			c.Del(t.Context(), "ringcache:space:a")
			put(t, l, object("a", 100_001))
		},
	} {
		c.Del(t.Context(), "ringcache:space:a")
		put(t, l, o)
		into := 0
		tenant = ""
		g := []tier.Get{{Key: o.Key, Into: func(o tier.Object) ([]byte, error) {
			into++
			change()
			return make([]byte, o.Size), nil
		}}}
		l.Get(t.Context(), g)
		require.Equal(t, 1, into)
		if g[0].Err == nil {
			require.True(t, bytes.Equal(content("a", 100_000), g[0].Bytes))
			require.Equal(t, tenant, g[0].Object.Tenant)
		} else {
			require.ErrorIs(t, g[0].Err, tier.ErrNotFound)
		}
	}
	require.Zero(t, l.Usage().Corrupt)
}

// An empty value is not an object, and the server answers as if there were no value.
func TestEmptyValue(t *testing.T) {
	s, l := start(t)
	c := raw(t, s)
	const key = "ringcache:space:a"
	c.Set(t.Context(), key, "", 0)
	err := get(t, l, "a").Err
	require.ErrorIs(t, err, tier.ErrNotFound)
	put(t, l, object("a", 10))
	require.NoError(t, get(t, l, "a").Err)
}

func FuzzParse(f *testing.F) {
	o := object("a", 3)
	o.Parent, o.Note = "p", []byte("n")
	head, _ := Objects{}.front(o, 7)
	f.Add(head, int64(len(head)+3))
	f.Add(head[:headFixed], int64(headFixed))
	f.Add([]byte{}, int64(0))
	f.Add([]byte("\x00\x02\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x10\x00\x00\x00\x04\x00\x00\x00"), int64(512))
	f.Fuzz(func(t *testing.T, head []byte, body int64) {
		if body < 0 {
			return
		}
		k := keyOf("a")
		for _, layout := range []Layout{Objects{}, LMCache{Space: "space"}, RESP{Space: "space"},
			RESP{Space: "space", Size: 512}} {
			e, err := layout.parse(k, head, body)
			var longer errLongerHead
			switch {
			case errors.As(err, &longer):
				if int(longer) <= len(head) || int(longer) > headFixed+tier.MaxName+tier.MaxTenant+tier.MaxNote || int64(longer) > body {
					t.Fatalf("asks for %d of %d bytes", longer, body)
				}
			case err == nil:
				if e.object.Validate() != nil || e.object.Key != k || e.offset+e.object.Size != body || e.offset < 0 {
					t.Fatalf("%+v of %d bytes", e, body)
				}
				if _, own := layout.(Objects); own {
					if again, _ := layout.front(e.object, e.sum); !bytes.Equal(again, head[:e.offset]) {
						t.Fatalf("%x is not %x", again, head)
					}
				}
			case !errors.Is(err, errMissing) && !errors.As(err, new(errDamaged)) && !errors.As(err, new(errForeign)):
				t.Fatal(err)
			}
		}
	})
}
