package disk

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

var benchSizes = []struct {
	name string
	size int
}{{"16KiB", 16 << 10}, {"2.6MiB", 256 * 5376 * 2}, {"34MiB", 34 << 20}}

// BenchmarkPut is beside os.WriteFile and a rename of the same bytes. Both replace a file by a new one.
func BenchmarkPut(b *testing.B) {
	for _, s := range benchSizes {
		data := content("bench", s.size)
		b.Run("level/"+s.name, func(b *testing.B) {
			l := open(b, b.TempDir(), Options{})
			require.NoError(b, l.WaitIndex(b.Context()))
			b.SetBytes(int64(s.size))
			for i := range b.N {
				o := objectOf(fmt.Sprint(i%8), s.size)
				puts := []tier.Put{{Object: o, Bytes: data}}
				l.Put(context.Background(), puts)
				if puts[0].Err != nil {
					b.Fatal(puts[0].Err)
				}
				b.StopTimer()
				l.Delete(context.Background(), []tier.Key{o.Key})
				b.StartTimer()
			}
		})
		b.Run("WriteFile/"+s.name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(int64(s.size))
			for i := range b.N {
				temp, to := filepath.Join(dir, "temp"), filepath.Join(dir, fmt.Sprint(i%8))
				if err := os.WriteFile(temp, data, 0o600); err != nil {
					b.Fatal(err)
				}
				if err := os.Rename(temp, to); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				require.NoError(b, os.Remove(to))
				b.StartTimer()
			}
		})
	}
}

// BenchmarkGet is beside os.ReadFile, with and without the same checksum, from the page cache.
func BenchmarkGet(b *testing.B) {
	for _, s := range benchSizes {
		data := content("bench", s.size)
		dir := b.TempDir()
		l := open(b, dir, Options{})
		require.NoError(b, put(l, objectOf("bench", s.size), data))
		memory := make([]byte, s.size)
		into := func(tier.Object) ([]byte, error) { return memory, nil }
		for _, place := range []struct {
			name string
			into func(tier.Object) ([]byte, error)
		}{{"level into/", into}, {"level/", nil}} {
			b.Run(place.name+s.name, func(b *testing.B) {
				b.SetBytes(int64(s.size))
				for range b.N {
					gets := []tier.Get{{Key: keyOf("bench"), Into: place.into}}
					l.Get(context.Background(), gets)
					if gets[0].Err != nil {
						b.Fatal(gets[0].Err)
					}
				}
			})
		}
		file := fileOf(b, dir, "bench")
		for _, sum := range []bool{false, true} {
			b.Run(fmt.Sprintf("ReadFile sum=%v/%s", sum, s.name), func(b *testing.B) {
				b.SetBytes(int64(s.size))
				for range b.N {
					got, err := os.ReadFile(file)
					if err != nil {
						b.Fatal(err)
					}
					if sum {
						crc32.Checksum(got, castagnoli)
					}
				}
			})
		}
	}
}
