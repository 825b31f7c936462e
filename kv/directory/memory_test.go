package directory

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var large = flag.Bool("directory.large", false, "TestFleet with 10 million entries of 1,000 instances")

// fleet is instances with chunks: each holds the chain of the common prompt, a tenth of them that of a group, and the
// rest is its own.
type fleet struct {
	d                 *Directory
	instances, chunks int
}

const common, group = 64, 512 // chunks

func newFleet(t testing.TB, instances, chunks int) *fleet {
	f := &fleet{New(Options{}), instances, chunks}
	for i := range instances {
		require.NoError(t, f.d.Register(Worker{ID: f.id(i)}))
		f.fill(t, i)
	}
	return f
}

func (*fleet) id(i int) ID { return ID{Instance: fmt.Sprintf("instance-%d", i)} }

func (f *fleet) fill(t testing.TB, i int) {
	reports := make([]Report, f.chunks)
	for j := range reports {
		reports[j] = Report{Key: f.key(i, j), Number: int64(j)}
	}
	require.NoError(t, f.d.Apply(f.id(i), "LocalCPUBackend", reports))
}

// key is chunk j of instance i.
func (*fleet) key(i, j int) Key {
	owner := uint64(1<<32 + i)
	switch {
	case j < common:
		owner = 0
	case j < group:
		owner = 1<<31 + uint64(i/10)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], owner)
	binary.BigEndian.PutUint64(b[8:], uint64(j))
	return KeyOf("model", b[:])
}

func (f *fleet) chain(i, length int) []Key {
	chain := make([]Key, length)
	for j := range chain {
		chain[j] = f.key(i, j)
	}
	return chain
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFleet: how much an entry takes, how long a look-up does, and that memory does not grow while instances
// come and go.
func TestFleet(t *testing.T) {
	instances, chunks := 100, 2000
	if *large {
		instances, chunks = 1000, 10_000
	}
	before := heap()
	f := newFleet(t, instances, chunks)
	full := heap() - before
	entries := f.d.Counts().Entries
	require.Equal(t, instances*chunks, entries)
	t.Logf("%d entries of %d instances, %d chunks: %.1f bytes for each entry", entries, instances,
		f.d.Counts().Chunks, float64(full)/float64(entries))
	require.Less(t, full/uint64(entries), uint64(64))

	for i := range instances * 3 { // each begins anew three times, in turn
		i %= instances
		require.NoError(t, f.d.Register(Worker{ID: f.id(i)}))
		f.fill(t, i)
		if i%16 == 0 {
			f.d.Expire()
		}
	}
	f.d.Expire()
	churned := heap() - before
	require.Equal(t, entries, f.d.Counts().Entries)
	t.Logf("after each instance began anew three times: %d MiB, %d before", churned>>20, full>>20)
	require.Less(t, churned, full+full/4+(2<<20))
	validate(t, f.d)

	rng := rand.New(rand.NewPCG(1, 2))
	chains := make([][]Key, 256)
	for i := range chains {
		chains[i] = f.chain(rng.IntN(instances), 1000)
	}
	for _, most := range []int{1, 8, 0} {
		took := make([]time.Duration, 4096)
		began := time.Now()
		for i := range took {
			at := time.Now()
			found := f.d.Find(chains[i%len(chains)], Query{Most: most})
			took[i] = time.Since(at)
			require.Equal(t, 1000, found[0].Chunks)
		}
		all := time.Since(began)
		slices.Sort(took)
		t.Logf("look-ups of 1,000 chunks, most %d: %.0f/s, median %v, p99 %v", most,
			float64(len(took))/all.Seconds(), took[len(took)/2], took[len(took)*99/100])
	}

	for i := range instances {
		require.True(t, f.d.Deregister(f.id(i)))
	}
	f.d.Expire()
	empty := heap() - before
	require.Less(t, empty, full/8+(1<<20), "what nobody holds takes no memory")
	validate(t, f.d)
	runtime.KeepAlive(f)
}

func BenchmarkFind(b *testing.B) {
	f := newFleet(b, 100, 2000)
	for _, length := range []int{16, 256, 1000} {
		for _, most := range []int{1, 8, 0} {
			b.Run(fmt.Sprintf("chunks=%d/most=%d", length, most), func(b *testing.B) {
				chain := f.chain(42, length)
				for b.Loop() {
					f.d.Find(chain, Query{Most: most})
				}
			})
		}
	}
}

func BenchmarkApply(b *testing.B) {
	f := newFleet(b, 100, 2000)
	reports := make([]Report, 50)
	n := int64(f.chunks)
	for b.Loop() {
		for i := range reports {
			reports[i] = Report{Evicted: i%2 == 1, Key: NumberKey(uint64(i / 2)), Number: n}
			n++
		}
		_ = f.d.Apply(f.id(1), "LocalCPUBackend", reports)
	}
}
