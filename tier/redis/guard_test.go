package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// mostMemory is what a level of a server that lies may take.
const mostMemory = 64 << 20

// lieTo answers every command but HELLO, or HELLO alone. A connection that said HELLO before is closed then.
func lieTo(hello bool, lie func(io.Writer) error) redistest.Answer {
	return func(conn io.Writer, command []string, truth []byte) error {
		switch isHello := strings.EqualFold(command[0], "hello"); {
		case isHello == hello:
			return lie(conn)
		case isHello:
			_, err := conn.Write(truth)
			return err
		}
		return errors.New("closed")
	}
}

// checkLies: a server that works answers strangely. The level is away, says what to do, takes little memory,
// and comes back.
func checkLies(t *testing.T, url string, f *redistest.Fake, lie redistest.Answer) {
	l := open(t, Options{URL: url, Retry: time.Millisecond, Timeout: 20 * time.Second})
	put(t, l, object("kept", 1000))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f.Do(lie)
	for i := range 12 {
		require.ErrorIs(t, tryPut(t.Context(), l, object(fmt.Sprint(i), 100))[0], tier.ErrUnavailable)
		require.ErrorIs(t, get(t, l, "kept").Err, tier.ErrUnavailable)
	}
	err := l.Ping(t.Context())
	require.ErrorIs(t, err, tier.ErrUnavailable)
	require.ErrorContains(t, err, "check that the address is that of a Redis or Valkey server")
	for _, err := range l.List(t.Context(), "") {
		require.ErrorIs(t, err, tier.ErrUnavailable)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mostMemory), "bytes allocated")
	f.Do(nil)
	require.Eventually(t, func() bool { return l.Ping(t.Context()) == nil }, 2*time.Minute, time.Millisecond)
	mustGet(t, l, "kept")
	put(t, l, object("new", 1000))
}

// TestRedisPanic: lengths that the client would allocate, and nesting that it would follow, are refused
// before.
func TestRedisPanic(t *testing.T) {
	deep := []byte(strings.Repeat("*1\r\n", 1000))
	for _, lie := range []struct{ name, answer string }{
		{"string of 2^63-1 bytes", "$9223372036854775807\r\n"},
		{"string of 2^40 bytes", "$1099511627776\r\n"},
		{"map of 2^30", "%1073741824\r\n"},
		{"map of 2^62", "%4611686018427387904\r\n"},
		{"array of 2^31-1", "*2147483647\r\n"},
		{"array of 2^62", "*4611686018427387904\r\n"},
		{"set of 2^40", "~1099511627776\r\n"},
		{"push of 2^62", ">4611686018427387904\r\n"},
		{"verbatim string of 2^62", "=4611686018427387904\r\n"},
		{"error of 2^62 bytes", "!4611686018427387904\r\n"},
		{"attribute of 2^62", "|4611686018427387904\r\n"},
		{"8 million arrays", ""},
		{"negative array", "*-5\r\n"},
		// further ones
		{"negative string", "$-2\r\n"},
		{"string of more than 2^63 bytes", "$99999999999999999999\r\n"},
		{"number that is none", ":1a\r\n"},
		{"arrays in an array", "*1000\r\n*1000\r\n"},
		{"answer to nothing", "+OK\r\n+OK\r\n+OK\r\n"},
		{"string without its end", "$1\r\nabc\r\n"},
		{"empty line", "\r\n"},
		{"line that ends in the midst", "+OK\n"},
	} {
		for _, hello := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, HELLO %v", lie.name, hello), func(t *testing.T) {
				f := redistest.NewFake(t)
				checkLies(t, f.URL(), f, lieTo(hello, func(conn io.Writer) error {
					if lie.answer != "" {
						_, err := io.WriteString(conn, lie.answer)
						return err
					}
					for range 8000 {
						if _, err := conn.Write(deep); err != nil {
							return err
						}
					}
					return nil
				}))
			})
		}
	}
}

// TestRedisEndlessLine: a line that does not end is none after some bytes.
func TestRedisEndlessLine(t *testing.T) {
	text, digits := bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("9"), 1<<20)
	for _, kind := range []string{"+", "-", ":", "$", "*", "%", "|", ",", "(", ""} {
		for _, hello := range []bool{true, false} {
			t.Run(fmt.Sprintf("%q, HELLO %v", kind, hello), func(t *testing.T) {
				f := redistest.NewFake(t)
				checkLies(t, f.URL(), f, lieTo(hello, func(conn io.Writer) error {
					if _, err := io.WriteString(conn, kind); err != nil {
						return err
					}
					endless := digits
					if strings.Contains("+-", kind) {
						endless = text
					}
					for {
						if _, err := conn.Write(endless); err != nil {
							return err
						}
					}
				}))
			})
		}
	}
}

// TestRedisPanicOfACluster: the client asks members of a cluster in goroutines of its own, where nobody could
// recover.
func TestRedisPanicOfACluster(t *testing.T) {
	for _, answer := range []string{"$9223372036854775807\r\n", "*4611686018427387904\r\n",
		"*1\r\n*4611686018427387904\r\n", "%1073741824\r\n"} {
		for _, hello := range []bool{true, false} {
			t.Run(fmt.Sprintf("%q, HELLO %v", answer, hello), func(t *testing.T) {
				f := redistest.NewFake(t)
				checkLies(t, "redis+cluster://"+f.Addr(), f, lieTo(hello, func(conn io.Writer) error {
					_, err := io.WriteString(conn, answer)
					return err
				}))
			})
		}
	}
}

// TestImpossibleLengths: a server says that a value has a length that no object has. It is a miss, in every
// layout and by every way of reading, and nothing is allocated.
func TestImpossibleLengths(t *testing.T) {
	for _, layout := range []string{"objects", "lmcache", "resp"} {
		for _, length := range []string{"-1", "-5", "-9223372036854775808", "536870913", "9223372036854775807"} {
			t.Run(layout+" "+length, func(t *testing.T) {
				f := redistest.NewFake(t)
				l := open(t, Options{URL: f.URL() + "?layout=" + layout})
				o := object("a", 100)
				if layout != "objects" {
					o.Space, o.Note = "", metadataOf(100)
				}
				put(t, l, o)
				f.Do(func(conn io.Writer, command []string, truth []byte) error {
					if command[0] == "strlen" {
						truth = []byte(":" + length + "\r\n")
					}
					_, err := conn.Write(truth)
					return err
				})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				var to bytes.Buffer
				gets := []tier.Get{{Key: o.Key}, {Key: o.Key, To: &to},
					{Key: o.Key, Into: func(o tier.Object) ([]byte, error) {
						return nil, fmt.Errorf("called with %d bytes", o.Size)
					}}}
				for i := range gets {
					l.Get(t.Context(), gets[i:i+1])
					require.ErrorIs(t, gets[i].Err, tier.ErrNotFound)
				}
				runtime.ReadMemStats(&after)
				require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
			})
		}
	}
}

// TestManyDescribedObjects: the memory of a batch whose caller gives none is made one object after the other,
// when the bytes come.
func TestManyDescribedObjects(t *testing.T) {
	f := redistest.NewFake(t)
	l := open(t, Options{URL: f.URL() + "?layout=resp", Timeout: time.Minute})
	var most atomic.Uint64 // bytes on the heap while the level waits for the bytes of one
	f.Do(func(conn io.Writer, command []string, truth []byte) error {
		switch {
		case command[0] == "strlen":
			truth = []byte(":16777216\r\n")
		case command[0] == "getrange" && command[3] == "16777216":
			truth = []byte("$1\r\na\r\n")
			runtime.GC()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapAlloc))
		}
		_, err := conn.Write(truth)
		return err
	})
	gets := make([]tier.Get, 64) // 1 GiB
	for i := range gets {
		gets[i].Key = tier.Key{Name: fmt.Sprint(i)}
	}
	l.Get(t.Context(), gets)
	for _, g := range gets {
		require.ErrorIs(t, g.Err, tier.ErrNotFound)
	}
	require.Positive(t, most.Load())
	require.Less(t, most.Load(), uint64(128<<20))
}

// TestMoreBytesThanTheLength: a server whose STRLEN is less than what GETRANGE returns. What is read is the
// object, by every way.
func TestMoreBytesThanTheLength(t *testing.T) {
	f := redistest.NewFake(t)
	l := open(t, Options{URL: f.URL()})
	o := object("a", 10)
	put(t, l, o)
	f.Do(func(conn io.Writer, command []string, truth []byte) error {
		if command[0] == "getrange" {
			value := append(truth[bytes.IndexByte(truth, '\n')+1:len(truth)-2:len(truth)-2], "behind the object"...)
			truth = fmt.Appendf(nil, "$%d\r\n%s\r\n", len(value), value)
		}
		_, err := conn.Write(truth)
		return err
	})
	var to bytes.Buffer
	gets := []tier.Get{{Key: o.Key}, {Key: o.Key, To: &to}, {Key: o.Key, Into: func(o tier.Object) ([]byte, error) {
		return make([]byte, o.Size), nil
	}}}
	l.Get(t.Context(), gets)
	for _, g := range gets {
		require.NoError(t, g.Err)
		require.EqualValues(t, 10, g.Object.Size)
	}
	require.Equal(t, content("a", 10), gets[0].Bytes)
	require.Equal(t, content("a", 10), to.Bytes())
	require.Equal(t, content("a", 10), gets[2].Bytes)
}

// streams is a connection over which a test sends.
type streams struct {
	net.Conn
	in io.Reader
}

func (s streams) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s streams) Write(p []byte) (int, error) { return len(p), nil }
func (s streams) Close() error                { return nil }

// TestGuardReadsInPieces: whatever the pieces in which commands and answers come, the guard passes every byte
// of right answers.
func TestGuardReadsInPieces(t *testing.T) {
	value := strings.Repeat("\r\n$5\r\n", 200)
	commands := "*3\r\n$3\r\nset\r\n$1\r\na\r\n$" + fmt.Sprint(len(value)) + "\r\n" + value + "\r\n" +
		"*4\r\n$8\r\ngetrange\r\n$1\r\na\r\n$1\r\n0\r\n$4\r\n1199\r\n*1\r\n$4\r\nscan\r\n*1\r\n$4\r\nping\r\n*1\r\n$4\r\nexec\r\n"
	replies := "+OK\r\n$1200\r\n" + value + "\r\n*2\r\n$1\r\n0\r\n*3\r\n$1\r\na\r\n$0\r\n\r\n$-1\r\n-ERR no\r\n*-1\r\n"
	for size := 1; size < 100; size++ {
		g := &guard{Conn: streams{in: strings.NewReader(replies)}}
		for c := commands; c != ""; {
			n, err := g.Write([]byte(c[:min(size, len(c))]))
			require.NoError(t, err)
			c = c[n:]
		}
		var out []byte
		for p := make([]byte, size); ; {
			n, err := g.Read(p)
			out = append(out, p[:n]...)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
		}
		require.Equal(t, replies, string(out))
		_, err := g.Write([]byte("*1\r\n$4\r\nping\r\n"))
		require.NoError(t, err)
		require.False(t, g.replies.begun)
	}
}

// TestGuardKnowsTheRange: a string is refused that is longer than the range that was asked for.
func TestGuardKnowsTheRange(t *testing.T) {
	for n, ok := range map[int]bool{0: true, 99: true, 100: true, 101: false} {
		g := &guard{Conn: streams{in: strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("x", n)))}}
		_, err := io.WriteString(g, "*4\r\n$8\r\ngetrange\r\n$3\r\nkey\r\n$4\r\n1000\r\n$4\r\n1099\r\n")
		require.NoError(t, err)
		_, err = io.ReadAll(g)
		if ok {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "the answer to GETRANGE announces 101 bytes where at most 100 can be")
		}
	}
}

// FuzzGuard: the pieces in which answers come decide nothing, what passes can be read by a client of the
// plainest kind, and has no more than it may.
func FuzzGuard(f *testing.F) {
	for _, answers := range []string{"+OK\r\n$3\r\nabc\r\n", "-ERR\r\n*2\r\n$1\r\na\r\n:1\r\n",
		"*1\r\n*1\r\n*0\r\n$-1\r\n", "$5\r\nab", "%1\r\n", "*99999\r\n"} {
		f.Add([]byte(answers))
	}
	const asked = "*1\r\n$4\r\nping\r\n*4\r\n$8\r\ngetrange\r\n$1\r\nk\r\n$1\r\n0\r\n$2\r\n19\r\n*1\r\n$4\r\nscan\r\n"
	read := func(t *testing.T, answers []byte, piece int) (string, error) {
		g := &guard{Conn: streams{in: bytes.NewReader(answers)}}
		_, err := io.WriteString(g, asked)
		require.NoError(t, err)
		var out []byte
		for p := make([]byte, piece); ; {
			n, err := g.Read(p)
			out = append(out, p[:n]...)
			if errors.Is(err, io.EOF) {
				return string(out), nil
			}
			if err != nil {
				return string(out), err
			}
		}
	}
	f.Fuzz(func(t *testing.T, answers []byte) {
		whole, err := read(t, answers, len(answers)+1)
		pieces, again := read(t, answers, 1)
		require.Equal(t, err == nil, again == nil, "%v, %v", err, again)
		require.True(t, strings.HasPrefix(string(answers), pieces))
		if err != nil {
			return
		}
		require.Equal(t, string(answers), whole)
		require.Equal(t, string(answers), pieces)
		rest := pieces
		for n := 0; rest != "" && n < 3; n++ {
			var values int
			if rest, values = plain(t, rest, 0); values > longValues+1 {
				t.Errorf("%d values", values)
			}
		}
		require.Empty(t, rest, "more than was asked for")
	})
}

// plain reads one value of RESP2, and returns what follows, and the number of values, of the beginning if it
// is cut off.
func plain(t *testing.T, text string, depth int) (rest string, values int) {
	require.LessOrEqual(t, depth, maxNested)
	line, rest, ok := strings.Cut(text, "\r\n")
	if !ok {
		return "", 1
	}
	if kind := line[0]; kind == '+' || kind == '-' || kind == ':' {
		return rest, 1
	}
	n, err := strconv.Atoi(line[1:])
	require.NoError(t, err)
	values = 1
	if line[0] == '$' {
		if n < 0 {
			return rest, values
		}
		return rest[min(n+2, len(rest)):], values
	}
	require.Equal(t, byte('*'), line[0])
	for ; n > 0; n-- {
		if rest == "" {
			return "", values + n
		}
		more := 0
		rest, more = plain(t, rest, depth+1)
		values += more
	}
	return rest, values
}

// TestFragmentedCluster: a cluster of which every slot is a range of its own, with two replicas and host
// names, is no liar.
func TestFragmentedCluster(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, "*16384\r\n")
	for i := range 16384 {
		fmt.Fprintf(&b, "*5\r\n:%d\r\n:%d\r\n", i, i)
		for n := range 3 {
			host := fmt.Sprintf("redis-%d.example-namespace.svc.cluster.local", n)
			fmt.Fprintf(&b, "*4\r\n$15\r\n100.100.100.%03d\r\n:6379\r\n$40\r\n%040d\r\n*2\r\n$8\r\nhostname\r\n$%d\r\n%s\r\n", 100+n, n, len(host), host)
		}
	}
	var c commands
	require.NoError(t, c.scan([]byte("*2\r\n$7\r\ncluster\r\n$5\r\nslots\r\n")))
	var r replies
	require.NoError(t, r.scan(b.Bytes(), &c))
	require.False(t, r.begun, "it is complete")
}
