//go:build linux

package mem_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringcache/ringcache/internal/mem"
)

// BenchmarkCopy shows what other ways of copying a payload into a ring would gain over Go's copy:
// pieces of 128 KiB, and a destination 8 bytes off, with which Go's copy stores past the caches
// from 1 MiB on where it would not otherwise (Intel with FSRM). "cold" is a ring larger than
// the caches of most machines. read-ns is the time in which another goroutine reads the bytes
// afterwards, as a worker does: what is stored past the caches is written faster and read slower.
func BenchmarkCopy(b *testing.B) {
	const ring = 512 << 20
	fd, err := unix.MemfdCreate("ringcache-bench", unix.MFD_CLOEXEC)
	require.NoError(b, err)
	defer unix.Close(fd)
	require.NoError(b, unix.Ftruncate(fd, ring))
	m, err := unix.Mmap(fd, 0, ring, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(b, err)
	defer func() { require.NoError(b, unix.Munmap(m)) }()
	clear(m)

	jobs, read := make(chan []byte), make(chan time.Duration)
	defer close(jobs)
	go func() {
		for p := range jobs {
			began, sum := time.Now(), uint32(0)
			for ; len(p) >= 64; p = p[64:] {
				sum += mem.Load32(p)
			}
			took := time.Since(began)
			if sum == 1 { // keeps the loads
				took++
			}
			read <- took
		}
	}()
	for _, size := range []int{64 << 10, 256 << 10, 1 << 20, 3 << 19, 2 << 20, 4 << 20, 8 << 20, 32 << 20} {
		src := make([]byte, size)
		for i := range src {
			src[i] = byte(i)
		}
		for _, span := range []struct {
			name  string
			bytes int
		}{{"warm", 4 * (size + 64)}, {"cold", ring}} {
			for _, way := range []struct {
				name       string
				off, piece int
			}{{"copy", 0, size}, {"pieces", 0, 128 << 10}, {"copy-8-off", 8, size}, {"pieces-8-off", 8, 128 << 10}} {
				b.Run(fmt.Sprintf("%dKiB/%s/%s", size>>10, span.name, way.name), func(b *testing.B) {
					b.SetBytes(int64(size))
					at, reading := 0, time.Duration(0)
					for b.Loop() {
						if at+size+64 > span.bytes {
							at = 0
						}
						dst := m[at+way.off : at+way.off+size]
						at += size + 64
						for from := 0; from < size; from += way.piece {
							to := min(from+way.piece, size)
							copy(dst[from:to], src[from:to])
						}
						b.StopTimer()
						jobs <- dst
						reading += <-read
						b.StartTimer()
					}
					b.ReportMetric(float64(reading.Nanoseconds())/float64(b.N), "read-ns/op")
				})
			}
		}
	}
}
