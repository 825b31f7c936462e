package lm

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestExchangesAreLMCaches sends what was sent to LMCache's own servers, and requires their answers byte for byte, but
// for what this server does better.
func TestExchangesAreLMCaches(t *testing.T) {
	better := map[string]string{ // by connection and step: what this server answers
		"LIST/LIST":              "fail", // stock servers leave the client waiting
		"negative length/PUT":    "closed",
		"negative length/HEALTH": "gone", // the connection is closed already
		"after a cut PUT/EXIST":  "fail", // stock servers store what did not come
		"after a cut PUT/GET":    "fail",
	}
	for _, g := range goldens(t) {
		t.Run(g.Form, func(t *testing.T) {
			b := newBed(t, bedOptions{})
			fail, err := g.form.AppendReply(nil, &Reply{Code: Fail, Meta: nothing})
			require.NoError(t, err)
			steps := 0
			for _, x := range g.Connections {
				c := b.dial()
				for _, step := range x.Steps {
					steps++
					what := x.Name + "/" + step.Step
					want, end := unhex(t, step.Receive), step.End
					switch better[what] {
					case "fail":
						want, end = fail, "complete"
					case "closed":
						want, end = nil, "closed"
					case "gone":
						continue
					}
					write(t, c, unhex(t, step.Send))
					got := make([]byte, len(want))
					_, err := io.ReadFull(c, got)
					require.NoError(t, err, what)
					require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got), what)
					if end == "closed" {
						requireClosed(t, c)
					}
				}
				require.NoError(t, c.Close())
			}
			t.Logf("lmcache %s: %d connections, %d steps", g.Versions["lmcache"], len(g.Connections), steps)
		})
	}
}

// TestRecordedExchanges replays testdata/exchanges, which LMCache's own server has answered, byte for byte, but for what
// this server does better.
func TestRecordedExchanges(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "exchanges", "lm_exchange.json"))
	require.NoError(t, err)
	var recorded struct {
		Exchanges []struct {
			Case, Step string
			Send       string `json:"send_hex"`
			Receive    string `json:"recv_hex"`
			End        string `json:"recv_end"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &recorded))
	require.Len(t, recorded.Exchanges, 83)
	b := newBed(t, bedOptions{})
	answer := func(code Code) string {
		reply, err := Located.AppendReply(nil, &Reply{Code: code, Meta: nothing})
		require.NoError(t, err)
		return hex.EncodeToString(reply)
	}
	better := map[string]string{ // by step: what this server answers
		"LIST":                            answer(Fail), // stock servers leave the client waiting
		"PUT with length -1, then HEALTH": "",
		"GET of the length -1 object":     "",
		"EXIST of a key whose PUT was cut after 10 of 100 bytes": answer(Fail), // stock servers store what did not come
		"GET of it":                     answer(Fail),
		"HEALTH on the same connection": answer(Success),
	}
	exist := header(t, Located, Request{Exist, key, 0, Meta{1, 2, [4]int32{}}, 0})
	var c net.Conn
	dial := func() {
		if c != nil {
			require.NoError(t, c.Close())
		}
		c = b.dial()
	}
	before, same := "", 0
	for _, x := range recorded.Exchanges {
		what, want, ends := x.Case+"/"+x.Step, x.Receive, x.End == "eof"
		together := strings.HasPrefix(x.Step, "HEALTH on the same") || x.Step == "GET of the length -1 object"
		if x.Case != before || strings.HasPrefix(x.Case, "bad") && !together {
			dial()
		}
		before = x.Case
		if other, is := better[x.Step]; is {
			want, ends = other, other == ""
		} else {
			same++
		}
		switch x.Step { // what was not sent in one piece
		case "EXIST sent one byte at a time":
			for i := range exist {
				write(t, c, exist[i:i+1])
			}
		case "half a header, then EOF":
			dial()
			write(t, c, exist[:100])
			require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
		case "EXIST of a key whose PUT was cut after 10 of 100 bytes":
			put := Request{Put, "trunc@1@0@1@half", 100, Meta{1, 2, [4]int32{1, 1, 1, 50}}, 0}
			write(t, c, append(header(t, Located, put), "only ten b"...))
			dial()
		case "GET of the length -1 object":
			continue // the connection is closed already
		}
		if x.Send != "" {
			write(t, c, unhex(t, x.Send))
		}
		got := make([]byte, len(want)/2)
		_, err := io.ReadFull(c, got)
		require.NoError(t, err, what)
		require.Equal(t, want, hex.EncodeToString(got), what)
		if ends {
			requireClosed(t, c)
		}
	}
	require.NoError(t, c.Close())
	t.Logf("%d steps, %d of them as LMCache's server", len(recorded.Exchanges), same)
}

const key = "org/model@1@0@1234abcd@bfloat16"

var meta = Meta{1, 3, [4]int32{2, 1, 4, 4}}

func TestClientAndServer(t *testing.T) {
	for _, f := range []Form{Located, Typed, Untyped} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			b := newBed(t, bedOptions{})
			c, ctx, want := b.client(f), t.Context(), meta
			if f == Untyped {
				want = Meta{}
			} else {
				require.NoError(t, c.Health(ctx))
			}
			_, _, err := c.Get(ctx, key, nil)
			require.ErrorIs(t, err, ErrMiss)
			found, err := c.Exists(ctx, key)
			require.NoError(t, err)
			require.False(t, found)
			require.NoError(t, c.Put(ctx, key, meta, []byte("value")))
			found, err = c.Exists(ctx, key)
			require.NoError(t, err)
			require.True(t, found)
			p, v, err := c.Get(ctx, key, nil)
			require.NoError(t, err)
			require.Equal(t, "value", string(v))
			require.Equal(t, want, p.Meta)
			place := make([]byte, 5)
			_, v, err = c.Get(ctx, key, func(Reply) ([]byte, error) { return place, nil })
			require.NoError(t, err)
			require.Same(t, &place[0], &v[0])
		})
	}
}

// TestValuesOfTheFirstEngineAreApart: what has no dtype is no value of an engine that needs one, and the
// other way round.
func TestValuesOfTheFirstEngineAreApart(t *testing.T) {
	b := newBed(t, bedOptions{})
	ctx := t.Context()
	require.NoError(t, b.client(Untyped).Put(ctx, key, Meta{}, []byte("untyped")))
	_, _, err := b.client(Located).Get(ctx, key, nil)
	require.ErrorIs(t, err, ErrMiss)
}

// TestReplacedValues: another value under a key takes the place of the one before in every level, whatever differs.
func TestReplacedValues(t *testing.T) {
	for _, lower := range []bool{false, true} {
		b := newBed(t, bedOptions{disk: lower})
		c, ctx := b.client(Located), t.Context()
		long := bytes.Repeat([]byte("a"), 200_000)
		other := bytes.Clone(long)
		other[150_000] = 'b'
		for i, x := range []struct {
			m Meta
			v []byte
		}{
			{meta, long},
			{meta, long},
			{meta, other},
			{Meta{1, 2, meta.Shape}, other},
			{meta, other[:100]},
			{meta, nil},
			{meta, long},
		} {
			require.NoError(t, c.Put(ctx, key, x.m, x.v))
			_, err := b.store.Drain(ctx)
			require.NoError(t, err)
			p, v, err := c.Get(ctx, key, nil)
			require.NoError(t, err, i)
			require.Equal(t, x.m, p.Meta, i)
			require.True(t, bytes.Equal(x.v, v), i)
		}
	}
}

// TestValueInUseStays: what another client is being sent can't be replaced.
func TestValueInUseStays(t *testing.T) {
	b := newBed(t, bedOptions{})
	c, ctx := b.client(Located), t.Context()
	require.NoError(t, c.Put(ctx, key, meta, []byte("old")))
	require.NoError(t, c.Health(ctx)) // it is stored
	k, err := Located.KeyOf(key)
	require.NoError(t, err)
	reader := Over(b.store)
	require.NoError(t, reader.Get(ctx, k, func(_ tier.Object, v []byte) error {
		for _, other := range []string{"new", "longer"} {
			require.NoError(t, c.Put(ctx, key, meta, []byte(other)))
			_, got, err := c.Get(ctx, key, nil)
			require.NoError(t, err)
			require.Equal(t, "old", string(got))
		}
		require.Equal(t, "old", string(v))
		return nil
	}))
	reader.Close()
	require.NoError(t, c.Put(ctx, key, meta, []byte("new")))
	_, got, err := c.Get(ctx, key, nil)
	require.NoError(t, err)
	require.Equal(t, "new", string(got))
}

// TestReplacedRightBehindGet: the server may still pin a value when its client has all of it. A Put on
// another connection at that moment was dropped.
func TestReplacedRightBehindGet(t *testing.T) {
	b := newBed(t, bedOptions{})
	one, other, ctx := b.client(Located), b.client(Located), t.Context()
	for n := range 300 {
		want := bytes.Repeat([]byte{byte(n)}, n%3)
		require.NoError(t, other.Put(ctx, key, meta, want))
		require.NoError(t, other.Health(ctx)) // it is stored
		_, v, err := one.Get(ctx, key, nil)
		require.NoError(t, err)
		require.Equal(t, string(want), string(v), n)
	}
	require.NotContains(t, b.log.String(), "was not stored")
}

// TestCutPutLeavesNothing: a value is there when all of it has come, and its room is free again if it did not.
func TestCutPutLeavesNothing(t *testing.T) {
	b := newBed(t, bedOptions{})
	empty := b.memory.Usage().Bytes
	for _, n := range []int{0, 1, 99_999} {
		c := b.dial()
		write(t, c, header(t, Located, Request{Put, key, 100_000, meta, 0}))
		write(t, c, make([]byte, n))
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		requireClosed(t, c)
		found, err := b.client(Located).Exists(t.Context(), key)
		require.NoError(t, err)
		require.False(t, found)
		require.Equal(t, empty, b.memory.Usage().Bytes)
	}
}

// TestWithoutRoomTheClientGoesOn: a value without room is received and dropped, since the client waits for no answer.
func TestWithoutRoomTheClientGoesOn(t *testing.T) {
	b := newBed(t, bedOptions{options: Options{MaxValue: 1 << 19}})
	ctx, c := t.Context(), b.client(Located)
	require.NoError(t, c.Put(ctx, key, meta, make([]byte, 1<<19+1))) // too large for the server
	require.NoError(t, c.Health(ctx))
	k, err := Located.KeyOf("m@1@0@1@half")
	require.NoError(t, err)
	lease, err := b.store.Lease(ctx, tier.LeaseOptions{ID: "room", Owner: "test"})
	require.NoError(t, err)
	require.NoError(t, lease.Reserve([]tier.Object{{Key: k, Size: 1<<20 - 16384}})[0].Err)
	require.NoError(t, c.Put(ctx, key, meta, make([]byte, 1<<18))) // too large for what is left
	found, err := c.Exists(ctx, key)
	require.NoError(t, err)
	require.False(t, found)
	lease.Release()
	require.NoError(t, c.Put(ctx, key, meta, make([]byte, 1<<18)))
	found, err = c.Exists(ctx, key)
	require.NoError(t, err)
	require.True(t, found)
	require.Contains(t, b.log.String(), "was not stored")
}

// TestValuesComeFromLowerLevels: what memory has evicted is fetched, and found by Exist.
func TestValuesComeFromLowerLevels(t *testing.T) {
	b := newBed(t, bedOptions{disk: true})
	c, ctx := b.client(Located), t.Context()
	values := map[string][]byte{}
	for n := range 40 {
		k := fmt.Sprintf("m@1@0@%x@half", n)
		values[k] = bytes.Repeat([]byte{byte(n)}, 100_000)
		require.NoError(t, c.Put(ctx, k, meta, values[k]))
		require.NoError(t, c.Health(ctx)) // it is stored
		_, err := b.store.Drain(ctx)
		require.NoError(t, err)
	}
	require.Less(t, b.memory.Usage().Objects, int64(40), "memory has evicted some")
	for k, want := range values {
		found, err := c.Exists(ctx, k)
		require.NoError(t, err)
		require.True(t, found)
		p, got, err := c.Get(ctx, k, nil)
		require.NoError(t, err)
		require.Equal(t, meta, p.Meta)
		require.True(t, bytes.Equal(want, got))
	}
}

// TestAgainstAMap compares random requests of several clients with a map.
func TestAgainstAMap(t *testing.T) {
	b := newBed(t, bedOptions{disk: true})
	rng := rand.New(rand.NewPCG(20261127, 1))
	type value struct {
		m Meta
		b []byte
	}
	model := map[string]value{}
	clients := []*Client{b.client(Located), b.client(Typed), b.client(Located)}
	ctx := t.Context()
	for range 3000 {
		c := clients[rng.IntN(len(clients))]
		n := rng.IntN(20)
		k := fmt.Sprintf("m@1@0@%x@half", n)
		switch was, known := model[k]; rng.IntN(4) {
		case 0, 1:
			dtype := []int32{0, 2, 3, 4, 5, 6, 7, 8}[rng.IntN(8)]
			v := value{
				Meta{int32(rng.IntN(9)), dtype, [4]int32{rng.Int32(), 2}},
				bytes.Repeat([]byte{byte(rng.IntN(2))}, rng.IntN(3)*40_000),
			}
			if known && rng.IntN(2) == 0 {
				v = was // the ordinary case: the key is a hash
			}
			require.NoError(t, c.Put(ctx, k, v.m, v.b))
			_, err := c.Exists(ctx, k) // it is stored before another client asks
			require.NoError(t, err)
			model[k] = v
			if rng.IntN(2) == 0 { // another description is found on the disk, too
				_, err := b.store.Drain(ctx)
				require.NoError(t, err)
			}
		case 2:
			found, err := c.Exists(ctx, k)
			require.NoError(t, err)
			require.Equal(t, known, found)
		case 3:
			p, got, err := c.Get(ctx, k, nil)
			if !known {
				require.ErrorIs(t, err, ErrMiss)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, was.m, p.Meta)
			require.True(t, bytes.Equal(was.b, got))
		}
	}
	require.NoError(t, b.memory.CheckStructure())
}

// TestSilentClients: a client may be silent between requests, but not within one.
func TestSilentClients(t *testing.T) {
	b := newBed(t, bedOptions{options: Options{MoveTime: 50 * time.Millisecond}})
	idle := b.dial()
	for _, p := range [][]byte{
		header(t, Located, Request{Exist, key, 0, nothing, 0})[:100],
		append(header(t, Located, Request{Put, key, 100, meta, 0}), "some"...),
		header(t, Located, Request{Put, key, 100, meta, 0})[:20],
	} {
		c := b.dial()
		write(t, c, p)
		requireClosed(t, c)
	}
	write(t, idle, header(t, Located, Request{Health, key, 0, nothing, 0}))
	requireReply(t, idle, Success, nil)
}

// TestClientThatReadsNothing: a client that does not take its value is closed, and its pin ends.
func TestClientThatReadsNothing(t *testing.T) {
	b := newBed(t, bedOptions{size: 64 << 20, options: Options{MoveTime: 50 * time.Millisecond}})
	o, err := Located.objectOf(&Request{Put, key, 32 << 20, meta, 0})
	require.NoError(t, err)
	direct := Over(b.store)
	defer direct.Close()
	require.NoError(t, direct.Put(t.Context(), o, bytes.NewReader(make([]byte, o.Size))))
	deaf := b.dial()
	write(t, deaf, header(t, Located, Request{Get, key, 0, nothing, 0}))
	head := make([]byte, 36)
	_, err = io.ReadFull(deaf, head) // it is being sent
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		return len(b.server.conns) == 0
	}, 5*time.Minute, 10*time.Millisecond)
	require.NoError(t, b.store.Delete(t.Context(), []tier.Key{o.Key})[0], "nothing pins it")
}

func TestConnectionsAreBounded(t *testing.T) {
	b := newBed(t, bedOptions{options: Options{MaxConnections: 2}})
	ask := func(c net.Conn) {
		write(t, c, header(t, Located, Request{Health, key, 0, nothing, 0}))
		requireReply(t, c, Success, nil)
	}
	first, second := b.dial(), b.dial()
	ask(first)
	ask(second)
	requireClosed(t, b.dial())
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool {
		b.server.mu.Lock()
		defer b.server.mu.Unlock()
		return len(b.server.conns) == 1
	}, 5*time.Minute, 10*time.Millisecond)
	ask(b.dial())
}

func TestRefusedConnections(t *testing.T) {
	b := newBed(t, bedOptions{options: Options{
		Open: func(net.Conn, func()) (Store, error) { return nil, errors.New("no") },
	}})
	requireClosed(t, b.dial())
}

// TestShutdownLetsRequestsEnd: a value that is on its way when the server ends is stored.
func TestShutdownLetsRequestsEnd(t *testing.T) {
	b := newBed(t, bedOptions{})
	idle, busy := b.dial(), b.dial()
	write(t, busy, header(t, Located, Request{Put, key, 10, meta, 0}))
	require.Eventually(t, func() bool { return len(b.store.Leases()) == 1 }, 5*time.Minute, time.Millisecond,
		"it is reserved")
	ended := make(chan struct{})
	go func() {
		b.server.Shutdown(context.Background())
		close(ended)
	}()
	requireClosed(t, idle)
	write(t, busy, []byte("0123456789"))
	<-ended
	k, err := Located.KeyOf(key)
	require.NoError(t, err)
	require.NoError(t, b.store.Stat(t.Context(), []tier.Key{k})[0].Err)
	_, err = net.Dial("tcp", b.address)
	require.Error(t, err)
}

// TestShutdownEndsAtOnceWithItsContext: requests that do not end are ended.
func TestShutdownEndsAtOnceWithItsContext(t *testing.T) {
	b := newBed(t, bedOptions{})
	busy := b.dial()
	write(t, busy, header(t, Located, Request{Put, key, 10, meta, 0}))
	require.Eventually(t, func() bool { return len(b.store.Leases()) == 1 }, 5*time.Minute, time.Millisecond,
		"it is reserved")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.server.Shutdown(ctx)
	requireClosed(t, busy)
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{}, {MaxValue: -1}, {MaxConnections: -1}} {
		_, err := NewServer(o)
		require.Error(t, err)
	}
}
