package tier_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// BenchmarkPin pins 64 objects that are in memory and gives them up again: through a store, and by the memory
// level's own lease.
func BenchmarkPin(b *testing.B) {
	m := openMemory(b, b.TempDir(), 16<<20)
	s := openStore(b, tier.Options{Memory: m, Lower: []tier.Lower{{Level: tiertest.NewMap(tiertest.MapOptions{})}}})
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprint("object ", i)
		require.NoError(b, put(m, names[i], "", 1000))
	}
	wanted := keys(names...)
	stores, err := s.Lease(b.Context(), tier.LeaseOptions{ID: "store's", Owner: "test"})
	require.NoError(b, err)
	levels, err := m.Lease(b.Context(), tier.LeaseOptions{ID: "level's", Owner: "test"})
	require.NoError(b, err)
	for name, pin := range map[string]func([]tier.Key) []tier.Placed{
		"lease": levels.Pin, "store": stores.Pin, "prefix": stores.PinPrefix,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if placed := pin(wanted); placed[63].Err != nil {
					b.Fatal(placed[63].Err)
				}
				levels.Unpin(wanted)
				stores.Unpin(wanted)
			}
		})
	}
}

// BenchmarkPromote brings 64 objects from a level on the heap, asked for by one Pin.
func BenchmarkPromote(b *testing.B) {
	for _, size := range []int64{4 << 10, 2720 << 10} {
		b.Run(fmt.Sprint(size>>10, " KiB"), func(b *testing.B) {
			m := openMemory(b, b.TempDir(), 80*size+1<<20)
			below := tiertest.NewMap(tiertest.MapOptions{})
			s := openStore(b, tier.Options{Memory: m, Lower: []tier.Lower{{Level: below}}})
			names := make([]string, 64)
			for i := range names {
				names[i] = fmt.Sprint("object ", i)
				require.NoError(b, put(below, names[i], "", size))
			}
			wanted := keys(names...)
			b.SetBytes(64 * size)
			for b.Loop() {
				l, err := s.Lease(b.Context(), tier.LeaseOptions{ID: "engine", Owner: "test"})
				require.NoError(b, err)
				for ask := true; ask; runtime.Gosched() {
					ask = false
					for _, p := range l.Pin(wanted) {
						ask = ask || isPending(p.Err)
						if p.Err != nil && !isPending(p.Err) {
							b.Fatal(p.Err)
						}
					}
				}
				l.Release()
				for _, err := range m.Delete(b.Context(), wanted) {
					require.NoError(b, err)
				}
			}
		})
	}
}
