package shmstore_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// Benchmarks of the bookkeeping of a store that is full: every put evicts. Payloads are not
// filled, since copying is not the store's work. The store is over private memory.

// keyLength is that of a hash in hexadecimal, which is what callers use.
const keyLength = 64

// keys makes keys that differ, many in one allocation, so that making them is hardly part of what
// is measured.
type keys struct {
	made int
	left []string
}

func (k *keys) next() string {
	if len(k.left) == 0 {
		k.left = k.more(1024)
	}
	key := k.left[0]
	k.left = k.left[1:]
	return key
}

// more returns n keys.
func (k *keys) more(n int) []string {
	b := make([]byte, 0, n*keyLength)
	for range n {
		k.made++
		var id [keyLength / 2]byte
		binary.BigEndian.PutUint64(id[:], uint64(k.made)*0x9e3779b97f4a7c15)
		b = hex.AppendEncode(b, id[:])
	}
	all, keys := string(b), make([]string, n)
	for i := range keys {
		keys[i] = all[i*keyLength:][:keyLength]
	}
	return keys
}

// benchStore makes a store with room for so many objects of size bytes with keys of keyLength.
func benchStore(b testing.TB, objects, size int) *shmstore.Store {
	b.Helper()
	each := (size+plainOverhead+63)/64*64 + 64
	o := shmstore.Options{Size: objects*each + 4096, MaxObjects: 2 * objects}
	seg, err := segment.Private(nil, o.SegmentOptions())
	require.NoError(b, err)
	o.Segment = seg
	s, err := shmstore.Create(o)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Abandon()) })
	return s
}

// plainOverhead is the bytes of a chunk beside the payload, with a key of keyLength.
const plainOverhead = 64 + 20 + keyLength

// putOne puts an object without filling it.
func putOne(b testing.TB, s *shmstore.Store, id, key string, size int) {
	r, err := s.Begin(shmstore.RequestOptions{ID: id})
	if err != nil {
		b.Fatal(err)
	}
	reserveOne(b, r, key, size)
	if err := r.Commit(); err != nil {
		b.Fatal(err)
	}
	r.Finish()
}

func reserveOne(b testing.TB, r *shmstore.Request, key string, size int) {
	res, err := r.Reserve(key, size, shmstore.PutOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := res.Commit(1); err != nil {
		b.Fatal(err)
	}
}

// fillStore puts as many objects as there is room for, and returns their keys.
func fillStore(b testing.TB, s *shmstore.Store, k *keys, objects, size int) []string {
	there := k.more(objects)
	for _, key := range there {
		putOne(b, s, "r", key, size)
	}
	return there
}

// sizes are those of docs/performance.md.
var sizes = []struct {
	name    string
	size    int
	objects int
}{{"4KiB", 4 << 10, 4096}, {"64KiB", 64 << 10, 512}, {"1MiB", 1 << 20, 64}, {"24MiB", 24 << 20, 8}}

// One op is a request that puts one object: Begin, Reserve, Commit, Commit of the request, Finish.
func BenchmarkReserveCommit(b *testing.B) {
	for _, z := range sizes {
		b.Run(z.name, func(b *testing.B) {
			s := benchStore(b, z.objects, z.size)
			var k keys
			fillStore(b, s, &k, 2*z.objects, z.size)
			b.ReportAllocs()
			for b.Loop() {
				putOne(b, s, "r", k.next(), z.size)
			}
		})
	}
}

// The limit of BenchmarkReserveCommit: what has to be written of a payload, and of the one whose
// place it takes, without any bookkeeping. Header, description, checksum, entry of the sidecar,
// use words, id; and who holds the old one.
func BenchmarkLimit(b *testing.B) {
	for _, z := range sizes {
		b.Run(z.name, func(b *testing.B) {
			o := shmstore.Options{Size: z.objects * (z.size + 4096), MaxObjects: 2 * z.objects}
			seg, err := segment.Private(nil, o.SegmentOptions())
			require.NoError(b, err)
			c, ring := sidecar.Of(seg), seg.Ring()
			entries := make([]int, z.objects)
			put := func(i int, key string) {
				at := i % z.objects * (z.size + 4096)
				chunk := ring[at:][:z.size+plainOverhead]
				if i >= z.objects {
					mem.Store32(chunk, shmring.DeadID)
					mem.Fence()
					if ids, _ := c.Held(); len(ids) > 0 {
						b.Fatal("nobody reads")
					}
					c.Drop(entries[i%z.objects])
				}
				mem.Store32(chunk, shmring.GoneID)
				mem.Store32(chunk[4:], uint32(len(chunk)))
				clear(chunk[8:64])
				description := chunk[len(chunk)-20-keyLength:]
				binary.LittleEndian.PutUint64(description, math.Float64bits(1))
				d := append(binary.LittleEndian.AppendUint32(description[:8], keyLength), key...)
				_ = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(d, 0), 0)
				r := sidecar.Record{Address: uint64(at), ID: uint32(i), Size: len(chunk), DescriptionOffset: len(chunk) - 28 - keyLength, DescriptionLength: 20 + keyLength}
				r.Sum = sidecar.PayloadSum(chunk[8:], r.DescriptionOffset+r.DescriptionLength, false)
				e := c.Put(r, 0)
				entries[i%z.objects] = e
				mem.Fence()
				mem.Store32(chunk, uint32(i))
				c.SetUse(e, 1<<63)
				c.SetUse(e, 0)
			}
			var k keys
			i := 0
			for ; i < 2*z.objects; i++ {
				put(i, k.next())
			}
			b.ReportAllocs()
			for b.Loop() {
				put(i, k.next())
				i++
			}
		})
	}
}

// One op is a request with one hit: Begin, Lookup, Commit, Finish. hit is a Lookup and the Drop
// that undoes it.
func BenchmarkLookup(b *testing.B) {
	s := benchStore(b, 4096, 4096)
	there := fillStore(b, s, new(keys), 4096, 4096)
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r, err := s.Begin(shmstore.RequestOptions{ID: "r"})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := r.Lookup(there[i*7919%4096], 1); err != nil {
				b.Fatal(err)
			}
			_ = r.Commit()
			r.Finish()
		}
	})
	b.Run("hit", func(b *testing.B) {
		b.ReportAllocs()
		r := begin(b, s, "r")
		defer r.Rollback()
		for i := 0; b.Loop(); i++ {
			key := there[i*7919%4096]
			if _, err := r.Lookup(key, 1); err != nil {
				b.Fatal(err)
			}
			r.Drop(key)
		}
	})
}

// What a put and a hit cost by the number of objects that are there, and the heap that the store
// takes for each; the bytes of the key are the caller's.
func BenchmarkLiveObjects(b *testing.B) {
	const size = 256
	for _, n := range []int{1e2, 1e4, 1e6} {
		b.Run(fmt.Sprintf("1e%d", len(strconv.Itoa(n))-1), func(b *testing.B) {
			if n > 1e4 && testing.Short() {
				b.Skip("a million objects take a while")
			}
			var k keys
			there := k.more(n)
			s := benchStore(b, n, size)
			before := heap()
			for _, key := range there {
				putOne(b, s, "r", key, size)
			}
			each := float64(heap()-before) / float64(n)
			b.Run("put", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					key := k.next()
					putOne(b, s, "r", key, size)
					there = append(there, key)
				}
				b.ReportMetric(each, "heapB/object")
			})
			there = slices.DeleteFunc(there, func(key string) bool { return !cached(s, key) })
			b.Run("hit", func(b *testing.B) {
				b.ReportAllocs()
				r := begin(b, s, "h")
				defer r.Rollback()
				for i := 0; b.Loop(); i++ {
					key := there[i*7919%len(there)]
					if _, err := r.Lookup(key, 1); err != nil {
						b.Fatal(err)
					}
					r.Drop(key)
				}
			})
			b.Run("map", func(b *testing.B) { // what a bare map with such keys takes
				m := map[string]*int{}
				for _, key := range there {
					m[key] = new(int)
				}
				sum := 0
				for i := 0; b.Loop(); i++ {
					p := m[there[i*7919%len(there)]]
					*p++
					sum += *p
				}
			})
			runtime.KeepAlive(s)
		})
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A put that is refused, while so many objects are leased.
func BenchmarkRefused(b *testing.B) {
	for _, n := range []int{1e2, 1e5} {
		for _, what := range []string{"bytes", "objects"} {
			b.Run(fmt.Sprintf("%s/%d", what, n), func(b *testing.B) {
				o := shmstore.Options{Size: n*512 + 4096, MaxObjects: n}
				if what == "bytes" {
					o.MaxObjects = 2 * n
				}
				seg, err := segment.Private(nil, o.SegmentOptions())
				require.NoError(b, err)
				o.Segment = seg
				s, err := shmstore.Create(o)
				require.NoError(b, err)
				b.Cleanup(func() { require.NoError(b, s.Abandon()) })
				r := begin(b, s, "holds")
				size := 512 - plainOverhead
				for _, key := range new(keys).more(n) {
					reserveOne(b, r, key, size)
				}
				if what == "bytes" {
					size = 1 << 14 // more than the rest
				}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.Reserve("one more", size, shmstore.PutOptions{}); err == nil {
						b.Fatal("there is no room")
					}
				}
			})
		}
	}
}

// The total of several goroutines: puts that evict, and hits, of 4 KiB.
func BenchmarkGoroutines(b *testing.B) {
	for _, g := range []int{1, 2, 4} {
		for _, what := range []string{"put", "hit"} {
			b.Run(fmt.Sprintf("%s/%d", what, g), func(b *testing.B) {
				const objects = 4096
				s := benchStore(b, objects, 4096)
				there := fillStore(b, s, new(keys), objects, 4096)
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for w := range g {
					all.Go(func() {
						id := strconv.Itoa(w)
						k := keys{made: (w + 1) << 32}
						for i := w; i < b.N; i += g {
							if what == "put" {
								putOne(b, s, id, k.next(), 4096)
								continue
							}
							r, err := s.Begin(shmstore.RequestOptions{ID: id})
							if err != nil {
								panic(err)
							}
							if _, err := r.Lookup(there[i*7919%objects], 1); err != nil {
								panic(err)
							}
							_ = r.Commit()
							r.Finish()
						}
					})
				}
				all.Wait()
			})
		}
	}
}
