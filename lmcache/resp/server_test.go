package resp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// TestClientOfEachProtocol: the client of package tier/redis, with its own hand-shake, in RESP2 and RESP3.
func TestClientOfEachProtocol(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			b := newBed(t, 0, false, nil)
			c := redis.NewClient(&redis.Options{Addr: b.addr, Protocol: protocol, ClientName: "test"})
			defer c.Close()
			ctx := t.Context()
			require.NoError(t, c.Ping(ctx).Err())
			require.ErrorIs(t, c.Get(ctx, "none").Err(), redis.Nil)
			for _, size := range []int{0, 1, 100, buffer / 2, buffer/2 + 1, 70_000, 3 << 20} {
				value := strings.Repeat("x", size)
				key := fmt.Sprint("key ", size, "\xff\r\n")
				require.NoError(t, c.Set(ctx, key, value, 0).Err())
				got, err := c.Get(ctx, key).Result()
				require.NoError(t, err)
				require.Equal(t, value, got)
				require.EqualValues(t, size, c.StrLen(ctx, key).Val())
			}
			require.EqualValues(t, 2, c.Exists(ctx, "key 1\xff\r\n", "none", "key 1\xff\r\n").Val())
			got, err := c.MGet(ctx, "key 1\xff\r\n", "none").Result()
			require.NoError(t, err)
			require.Equal(t, []any{"x", nil}, got)
			require.EqualValues(t, 1, c.Del(ctx, "key 1\xff\r\n", "none").Val())
			require.EqualValues(t, 1, c.Unlink(ctx, "key 100\xff\r\n").Val())
			require.ErrorIs(t, c.Get(ctx, "key 1\xff\r\n").Err(), redis.Nil)
			require.Equal(t, "hello", c.Echo(ctx, "hello").Val())
			require.Equal(t, "test", c.ClientGetName(ctx).Val())
			require.Contains(t, c.Info(ctx).Val(), "redis_version:7.0.0")
			require.ErrorContains(t, c.Incr(ctx, "n").Err(), "ERR unknown command")
			require.ErrorContains(t, c.Set(ctx, "k", "v", time.Minute).Err(), "no time to live")
			require.ErrorIs(t, c.Get(ctx, "k").Err(), redis.Nil)
			_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range 2000 {
					p.Set(ctx, fmt.Sprint(i), i, 0)
					p.Get(ctx, fmt.Sprint(i))
				}
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, c.FlushDB(ctx).Err())
			require.ErrorIs(t, c.Get(ctx, "7").Err(), redis.Nil)
			require.Zero(t, b.memory.Usage().Objects)
		})
	}
}

// TestHello: what redis-py 8.1.0 sends, and what it takes for an answer.
func TestHello(t *testing.T) {
	b := newBed(t, 0, false, nil)
	p := b.dial()
	require.Equal(t, "$-1\r\n", p.do("GET", "none"))
	require.Equal(t, "%7\r\n$6\r\nserver\r\n$9\r\nringcache\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n"+
		"$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"+
		"$7\r\nmodules\r\n*0\r\n", p.do("HELLO", "3", "SETNAME", "me"))
	require.Equal(t, "_\r\n", p.do("GET", "none"))
	maintenance := p.do("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "internal-ip")
	require.True(t, strings.HasPrefix(maintenance, "-ERR "), maintenance)
	require.Equal(t, "+OK\r\n", p.do("CLIENT", "SETINFO", "LIB-NAME", "redis-py"))
	require.Equal(t, bulk("me"), p.do("CLIENT", "GETNAME"))
	require.True(t, strings.HasPrefix(p.do("HELLO", "4"), "-NOPROTO "))
	require.True(t, strings.HasPrefix(p.do("HELLO", "2"), "*14\r\n"))
	require.Equal(t, "$-1\r\n", p.do("GET", "none"))
	require.Equal(t, "+OK\r\n", p.do("QUIT"))
	p.ended()
}

// TestPassword: nothing is said before the password, and little is read.
func TestPassword(t *testing.T) {
	b := newBed(t, 0, false, func(o *Options) { o.Password = "secret" })
	p := b.dial()
	for _, cmd := range [][]string{
		{"PING"}, {"GET", "k"}, {"SET", "k", "v"}, {"EXISTS", "k"}, {"FLUSHALL"}, {"HELLO", "3"}, {"CLIENT", "ID"},
	} {
		require.True(t, strings.HasPrefix(p.do(cmd...), "-NOAUTH "), cmd)
	}
	require.Equal(t, "+OK\r\n", p.do("AUTH", "secret"))
	require.Equal(t, "+PONG\r\n", p.do("PING"))
	require.Equal(t, "+RESET\r\n", p.do("RESET"))
	require.True(t, strings.HasPrefix(p.do("PING"), "-NOAUTH "))
	require.Equal(t, "+OK\r\n", p.do("AUTH", "default", "secret"))
	p = b.dial()
	require.True(t, strings.HasPrefix(p.do("HELLO", "3", "AUTH", "default", "secret", "SETNAME", "x"), "%7\r\n"))
	for _, cmd := range [][]string{
		{"AUTH", "other"}, {"AUTH", "user", "secret"}, {"AUTH", "default", "secre"},
		{"HELLO", "3", "AUTH", "default", "x"},
	} {
		p = b.dial()
		require.True(t, strings.HasPrefix(p.do(cmd...), "-WRONGPASS "), cmd)
		require.True(t, strings.HasPrefix(p.do("PING"), "-NOAUTH "), cmd)
	}
	p = b.dial()
	p.send("SET", "k", strings.Repeat("x", maxValueBefore+1))
	require.True(t, strings.HasPrefix(p.answer(), "-NOAUTH "))
	require.True(t, strings.HasPrefix(p.answer(), "-ERR Protocol error: an argument of 16385 bytes"))
	p.ended()
	require.Equal(t, uint64(4), b.server.Counts().WrongPasswords)
}

// TestNativeClientStaysInStep: the answers that LMCache's native client can't take for what they are have the
// length that it reads. It asks on one connection, and reads on another one.
func TestNativeClientStaysInStep(t *testing.T) {
	b := newBed(t, 1<<20, false, nil)
	one, two := b.dial(), b.dial()
	for _, size := range []int{0, 7, 10, 99, 100, 65536, 123456} {
		value := strings.Repeat("v", size)
		one.send("SET", "k", value)
		require.Equal(t, "+OK\r\n", one.exactly(5))
		for _, p := range []*peer{one, two} {
			p.send("EXISTS", "k")
			require.Equal(t, ":1\r\n", p.exactly(4))
		}
		two.send("GET", "k")
		require.Equal(t, bulk(value), two.exactly(len(bulk(value))))
		one.send("DEL", "k")
		require.Equal(t, ":1\r\n", one.exactly(4))
		two.send("GET", "k")
		header := fmt.Sprintf("$%d\r\n", size)
		lost := two.exactly(len(header))
		require.Equal(t, byte('-'), lost[0])
		require.True(t, strings.HasSuffix(lost, "\r\n"))
		two.send("EXISTS", "k")
		require.Equal(t, ":0\r\n", two.exactly(4), "it is in step")
	}
	require.Equal(t, uint64(7), b.server.Counts().Lost)
	one.send("SET", "large", strings.Repeat("x", 2<<20))
	require.Equal(t, "-NO\r\n", one.exactly(5))
	one.send("SET", "", "x")
	require.Equal(t, "-NO\r\n", one.exactly(5))
	one.send("EXISTS", "large")
	require.Equal(t, ":0\r\n", one.exactly(4))
	three := b.dial() // who has asked nothing hears what Redis would say
	require.Equal(t, "$-1\r\n", three.do("GET", "k"))
	require.Equal(t, "+PONG\r\n", three.do("PING"))
	require.True(t, strings.HasPrefix(three.do("SET", "large", strings.Repeat("x", 2<<20)), "-OOM "))
	require.Equal(t, "$-1\r\n", two.do("GET", "large"))
}

// TestExistsPins: what EXISTS has affirmed stays through any number of SET until it is read, or PinTime has
// passed, and no longer than there are others to be pinned.
func TestExistsPins(t *testing.T) {
	b := newBed(t, 1<<20, false, func(o *Options) { o.MaxPins = 8 })
	p, other := b.dial(), b.dial()
	value := strings.Repeat("v", 32<<10)
	for i := range 8 {
		require.Equal(t, "+OK\r\n", p.do("SET", fmt.Sprint("k", i), value))
	}
	for i := range 8 {
		require.Equal(t, ":1\r\n", p.do("EXISTS", fmt.Sprint("k", i)))
	}
	for i := range 100 {
		require.Equal(t, "+OK\r\n", other.do("SET", fmt.Sprint("other", i), value))
	}
	for i := range 8 {
		require.Equal(t, bulk(value), other.do("GET", fmt.Sprint("k", i)))
	}
	require.Eventually(t, func() bool { return b.pinned() == 0 }, 2*time.Minute, time.Millisecond, "GET ends the pin")
	for i := range 8 {
		require.Equal(t, ":1\r\n", p.do("EXISTS", fmt.Sprint("other", 99-i)))
	}
	require.Equal(t, ":1\r\n", p.do("EXISTS", "other80"))
	require.Equal(t, 8, b.pinned())
	b.server.pins.expire(time.Now().Add(time.Second))
	require.Zero(t, b.pinned())
	require.Eventually(t, func() bool { return len(b.store.Leases()) == 0 }, 2*time.Minute, time.Millisecond)
}

// TestPinsGiveWay: what is pinned for some does not keep others from storing, and from asking.
func TestPinsGiveWay(t *testing.T) {
	b := newBed(t, 1<<20, false, nil)
	p := b.dial()
	value := strings.Repeat("v", 128<<10)
	for i := range 40 {
		require.Equal(t, "+OK\r\n", p.do("SET", fmt.Sprint(i), value))
		require.Equal(t, ":1\r\n", p.do("EXISTS", fmt.Sprint(i)))
	}
}

// TestConnectorPair: EXISTS of the metadata of LMCache's Redis connector pins the bytes, too, and the
// metadata are evicted before the bytes.
func TestConnectorPair(t *testing.T) {
	b := newBed(t, 1<<20, false, nil)
	p := b.dial()
	require.Equal(t, "+PONG\r\n", p.do("PING"))
	value := strings.Repeat("v", 100<<10)
	require.Equal(t, "+OK\r\n", p.do("SET", "a@1kv_bytes", value))
	require.Equal(t, "+OK\r\n", p.do("SET", "a@1metadata", strings.Repeat("m", 28)))
	require.Equal(t, ":1\r\n", p.do("EXISTS", "a@1metadata"))
	for i := range 20 {
		require.Equal(t, "+OK\r\n", p.do("SET", fmt.Sprint(i), value))
	}
	require.Equal(t, bulk(strings.Repeat("m", 28)), p.do("GET", "a@1metadata"))
	require.Equal(t, bulk(value), p.do("GET", "a@1kv_bytes"))
	found := b.store.Stat(t.Context(), []tier.Key{{Space: space, Name: "a@1metadata"}})[0]
	require.NoError(t, found.Err)
	require.Equal(t, "a@1kv_bytes", found.Object.Parent)
}

// TestLowerLevel: what only a lower level has is found, brought to memory, overwritten and deleted there.
func TestLowerLevel(t *testing.T) {
	b := newBed(t, 1<<20, true, nil)
	p := b.dial()
	value := strings.Repeat("v", 256<<10)
	for i := range 20 {
		require.Equal(t, "+OK\r\n", p.do("SET", fmt.Sprint(i), value+fmt.Sprint(i)))
		_, err := b.store.Drain(t.Context())
		require.NoError(t, err)
	}
	for i := range 20 {
		require.Equal(t, ":1\r\n", p.do("EXISTS", fmt.Sprint(i)))
		require.Equal(t, bulk(value+fmt.Sprint(i)), p.do("GET", fmt.Sprint(i)))
	}
	require.Equal(t, "+OK\r\n", p.do("SET", "0", "short"))
	require.Equal(t, bulk("short"), p.do("GET", "0"))
	require.Equal(t, ":1\r\n", p.do("DEL", "1"))
	require.Equal(t, ":0\r\n", p.do("EXISTS", "1"))
	require.Equal(t, ":0\r\n", p.do("DEL", "1"))
	require.Equal(t, "+OK\r\n", p.do("FLUSHALL", "ASYNC"))
	require.Equal(t, ":0\r\n", p.do("EXISTS", "2", "3", "4"))
}

// TestBrokenSet: what did not come whole is not stored, and what was there stays.
func TestBrokenSet(t *testing.T) {
	b := newBed(t, 0, false, nil)
	p := b.dial()
	require.Equal(t, "+OK\r\n", p.do("SET", "k", strings.Repeat("a", 200_000)))
	whole := encode("SET", "k", strings.Repeat("a", 100_000)+strings.Repeat("b", 100_000))
	fresh := encode("SET", "fresh", strings.Repeat("a", 100_000))
	larger := encode("SET", "k", strings.Repeat("a", 300_000))
	for _, cmd := range [][]byte{whole, fresh, larger} {
		for _, n := range []int{len(cmd) - 1, len(cmd) - 2, len(cmd) - 3, 30, 120_000} {
			q := b.dial()
			_, err := q.conn.Write(cmd[:min(n, len(cmd)-1)])
			require.NoError(t, err)
			require.NoError(t, q.conn.(*net.TCPConn).CloseWrite())
			q.ended()
		}
	}
	require.Equal(t, bulk(strings.Repeat("a", 200_000)), p.do("GET", "k"))
	require.Equal(t, ":0\r\n", p.do("EXISTS", "fresh"))
}

// TestAnswersAreNotHeldBack: whoever sends a part of a command may wait for the answer to the one before it.
func TestAnswersAreNotHeldBack(t *testing.T) {
	p := newBed(t, 0, false, nil).dial()
	_, err := p.conn.Write(append(encode("PING"), "*2\r\n$4\r\nEC"...))
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", p.answer())
	_, err = p.conn.Write([]byte("HO\r\n$1\r\nx\r\n"))
	require.NoError(t, err)
	require.Equal(t, bulk("x"), p.answer())
}

// TestSlowSetOfAnother: who waits for a SET of another client is not taken for one that does not go on.
func TestSlowSetOfAnother(t *testing.T) {
	b := newBed(t, 0, false, func(o *Options) { o.Patience = 2 * time.Second })
	p := b.dial()
	require.Equal(t, "+PONG\r\n", p.do("PING"))
	k := tier.Key{Space: space, Name: "k"}
	b.server.writers.add(k)
	require.Equal(t, "-ERR others are storing the object\r\n", p.do("SET", "k", strings.Repeat("x", 300_000)))
	b.server.writers.remove(k)
	require.Equal(t, "+OK\r\n", p.do("SET", "k", strings.Repeat("x", 300_000)))
}

// TestAffirmedAgainStays: an object that EXISTS has affirmed lately is known, however long ago it was affirmed first.
func TestAffirmedAgainStays(t *testing.T) {
	var a affirmed
	for i := range maxAffirmed {
		a.add(fmt.Sprint(i), int64(i))
	}
	a.add("0", 7)
	a.add("new", 8)
	n, ok := a.size("0")
	require.True(t, ok)
	require.EqualValues(t, 7, n)
	_, ok = a.size("1")
	require.False(t, ok)
	require.Len(t, a.at, maxAffirmed)
}

// TestUnspeakable: what is not the protocol ends a connection with an error; what is only no command does not.
func TestUnspeakable(t *testing.T) {
	b := newBed(t, 0, false, nil)
	for _, text := range []string{
		"GET / HTTP/1.1\r\n\r\n", "*1\r\n+PING\r\n", "*1\r\n$9223372036854775807\r\n", "*9223372036854775807\r\n",
		"*2\r\n$-1\r\n", "*x\r\n",
		"*1\r\n$4\r\nPINGxx", "*1\n$4\r\n", "*1\r\n$" + strings.Repeat("0", buffer+1) + "\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nvvv",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n", "$4\r\nPING\r\n", "*+1\r\n",
	} {
		p := b.dial()
		_, err := p.conn.Write([]byte(text))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(p.answer(), "-ERR Protocol error: "), "%.50q", text)
		p.ended()
	}
	p := b.dial()
	_, err := p.conn.Write([]byte("*0\r\n*-1\r\n"))
	require.NoError(t, err)
	for _, cmd := range [][]string{
		{"NONE"}, {""}, {strings.Repeat("x", 200_000)}, {"GET"}, {"GET", "a", "b"}, {"SET", "k"}, {"SELECT", "1"},
		{"SELECT", "x"}, {"CLIENT", "KILL"},
		{"SET", "k", "v", "EX", "1"}, {"SET", "k", "v", "NX"}, {"SET", "a\x00b", "v"},
		{"SET", strings.Repeat("k", 1025), "v"}, {"FLUSHDB", "NOW"},
		{"CONFIG", "GET", "*"}, {"EVAL", "return 1", "0"}, {"CLIENT", "SETNAME", "a b"}, {"NO\r\n+PE", "x"},
	} {
		answer := p.do(cmd...)
		require.Equal(t, byte('-'), answer[0], "%.50q", cmd)
		require.Equal(t, 1, strings.Count(answer, "\r\n"))
	}
	require.Equal(t, "$-1\r\n", p.do("GET", "a\x00b"))
	require.Equal(t, ":0\r\n", p.do("EXISTS", strings.Repeat("k", 1025), "", "a\x00b"))
	require.Equal(t, "+PONG\r\n", p.do("PING"))
	many := []string{"MGET"}
	for range maxWords {
		many = append(many, "k")
	}
	require.Equal(t, byte('-'), p.do(many...)[0])
	many[0] = "EXISTS"
	require.Equal(t, ":0\r\n", p.do(many...))
}

// TestConnectionsAreBounded: there are no more than may be, and those that have ended make room.
func TestConnectionsAreBounded(t *testing.T) {
	b := newBed(t, 0, false, func(o *Options) { o.MaxConnections = 2 })
	p, q := b.dial(), b.dial()
	require.Equal(t, "+PONG\r\n", p.do("PING"))
	require.Equal(t, "+PONG\r\n", q.do("PING"))
	b.dial().ended()
	require.Equal(t, "+OK\r\n", q.do("QUIT"))
	q.ended()
	require.Eventually(t, func() bool { return b.server.Counts().Connected < 2 }, 2*time.Minute, time.Millisecond)
	require.Equal(t, "+PONG\r\n", b.dial().do("PING"))
	require.Equal(t, uint64(1), b.server.Counts().Refused)
}

// TestWhoDoesNotRead: a client that sends and does not read is disconnected, and what it pinned is free.
func TestWhoDoesNotRead(t *testing.T) {
	b := newBed(t, 0, false, func(o *Options) { o.Patience = 200 * time.Millisecond })
	p := b.dial()
	require.Equal(t, "+OK\r\n", p.do("SET", "k", strings.Repeat("v", 8<<20)))
	for range 20 {
		p.send("GET", "k")
	}
	require.Eventually(t, func() bool { return b.server.Counts().Connected == 0 }, 2*time.Minute, time.Millisecond)
	require.Equal(t, ":1\r\n", b.dial().do("DEL", "k"))
	q := b.dial() // nor one that begins a command and goes away for long
	_, err := q.conn.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000\r\n"))
	require.NoError(t, err)
	q.ended()
	require.Equal(t, "+OK\r\n", b.dial().do("SET", "k", "v"))
}

// TestConcurrent: many clients of few keys find values whole, whatever others store and delete.
func TestConcurrent(t *testing.T) {
	b := newBed(t, 4<<20, true, nil)
	var all sync.WaitGroup
	for i := range 8 {
		p := b.dial()
		r := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			if i%2 == 0 {
				p.do("PING")
			}
			for range 300 {
				key := fmt.Sprint("k", r.IntN(6))
				switch r.IntN(5) {
				case 0, 1:
					one := fmt.Sprint(r.IntN(3))
					p.send("SET", key, strings.Repeat(one, 1+r.IntN(3)*100_000))
					answer := p.answer()
					assert.Contains(t, "+- ", answer[:1])
				case 2:
					p.do("EXISTS", key)
				case 3:
					p.do("DEL", key)
				default:
					answer := p.do("GET", key)
					if answer[0] == '$' && answer != "$-1\r\n" {
						_, value, _ := strings.Cut(answer, "\r\n")
						value = strings.TrimSuffix(value, "\r\n")
						assert.Equal(t, strings.Repeat(value[:1], len(value)), value)
					}
				}
			}
		})
	}
	all.Wait()
}
