package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// benchSizes are a chunk of a small model, an image's embedding, and a large chunk.
var benchSizes = []struct{ size, batch int }{{16 << 10, 64}, {2600 << 10, 8}, {34 << 20, 2}}

// BenchmarkGet reads batches: by one call, by a call for each, and by the bare protocol, one after the other,
// into the same memory, which is what a loop around a client does at best.
func BenchmarkGet(b *testing.B) {
	s := redistest.Start(b)
	l := open(b, Options{URL: "unix://" + s.Socket(), Timeout: time.Minute})
	for _, c := range benchSizes {
		gets := make([]tier.Get, c.batch)
		memory := make([][]byte, c.batch)
		for i := range gets {
			o := object(fmt.Sprint(c.size, " ", i), c.size)
			put(b, l, o)
			memory[i] = make([]byte, c.size)
			gets[i] = tier.Get{Key: o.Key, Into: func(tier.Object) ([]byte, error) { return memory[i], nil }}
		}
		run := func(name string, fn func()) {
			b.Run(fmt.Sprintf("%d/%s", c.size, name), func(b *testing.B) {
				b.SetBytes(int64(c.size * c.batch))
				b.ReportAllocs()
				for b.Loop() {
					fn()
				}
			})
		}
		check := func() {
			for i := range gets {
				require.NoError(b, gets[i].Err)
			}
		}
		run("batch", func() { l.Get(b.Context(), gets); check() })
		run("one by one", func() {
			for i := range gets {
				l.Get(b.Context(), gets[i:i+1])
			}
			check()
		})
		conn, err := net.Dial("unix", s.Socket())
		require.NoError(b, err)
		in := bufio.NewReaderSize(conn, connBuffer)
		head := make([]byte, headFixed)
		bare := func(command string, args ...any) {
			fmt.Fprintf(conn, command, args...)
			line, err := in.ReadString('\n')
			require.NoError(b, err)
			n, err := strconv.Atoi(line[1 : len(line)-2])
			require.NoError(b, err)
			if n == c.size+headFixed {
				_, err = io.ReadFull(in, head)
				require.NoError(b, err)
				n -= headFixed
			}
			_, err = io.ReadFull(in, memory[0][:n])
			require.NoError(b, err)
			_, err = in.Discard(2)
			require.NoError(b, err)
		}
		run("bare GET", func() {
			for _, g := range gets {
				key := "ringcache:space:" + g.Key.Name
				bare("*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
			}
		})
		run("bare GETRANGE", func() {
			for _, g := range gets {
				key := "ringcache:space:" + g.Key.Name
				bare("*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%s\r\n$2\r\n%d\r\n$2\r\n-1\r\n", len(key), key, headFixed)
			}
		})
		conn.Close()
	}
}

// BenchmarkPut stores batches of new objects: by one call, and by a call for each.
func BenchmarkPut(b *testing.B) {
	s := redistest.Start(b)
	l := open(b, Options{URL: "unix://" + s.Socket(), Timeout: time.Minute})
	for _, c := range benchSizes {
		puts := make([]tier.Put, c.batch)
		keys := make([]tier.Key, c.batch)
		for i := range puts {
			o := object(fmt.Sprint(c.size, " ", i), c.size)
			puts[i] = tier.Put{Object: o, Bytes: content(o.Name, c.size)}
			keys[i] = o.Key
		}
		for _, name := range []string{"batch", "one by one"} {
			b.Run(fmt.Sprintf("%d/%s", c.size, name), func(b *testing.B) {
				b.SetBytes(int64(c.size * c.batch))
				b.ReportAllocs()
				for b.Loop() {
					if name == "batch" {
						l.Put(b.Context(), puts)
					} else {
						for i := range puts {
							l.Put(b.Context(), puts[i:i+1])
						}
					}
					b.StopTimer()
					for i := range puts {
						require.NoError(b, puts[i].Err)
					}
					l.Delete(b.Context(), keys)
					b.StartTimer()
				}
			})
		}
	}
}
