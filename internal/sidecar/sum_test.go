package sidecar

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// distance is that of docs/format.md: the smallest of which 64 make the payload.
func distance(n int) int {
	for d := 4096; ; d += 4096 {
		if 64*d >= n {
			return d
		}
	}
}

var sumSizes = []int{0, 3, 4, 5, 63, 64, 1000, 4095, 4096, 4097, 4160, 8191, 8192, 8193, 65535, 65536, 65537, 65599, 65600, 65601, 131072, 131100, 200000, 262143, 262144, 262145, 262208, 300001, 1 << 20, 1<<20 + 1}

// PayloadSum covers the bytes that docs/format.md names, one after the other.
func TestPayloadSumIsThatOfTheDocument(t *testing.T) {
	sum := func(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
	for _, n := range sumSizes {
		payload := random(n)
		for _, front := range []int{0, 40, 4095, 4096, 4097, 8192, 9000, 65536, 65537, 70000, 131072, 131073, 190000, 262145} {
			if front > n {
				continue
			}
			t.Run(fmt.Sprintf("%d bytes, note up to %d", n, front), func(t *testing.T) {
				require.Equal(t, sum(payload[min(4, n):]), PayloadSum(payload, front, true), "every byte but the count")
				head := max(4096, front)
				if head >= n {
					require.Equal(t, sum(payload[min(4, n):]), PayloadSum(payload, front, false))
					return
				}
				covered, samples := bytes.Clone(payload[4:head]), 0
				for at := 0; at < n; at += distance(n) {
					if at >= head {
						covered = append(covered, payload[at:min(at+64, n)]...)
						samples++
					}
				}
				covered = append(covered, payload[max(head, n-64):]...)
				require.Equal(t, sum(covered), PayloadSum(payload, front, false))
				require.LessOrEqual(t, samples, 64)
			})
		}
	}
}

// What docs/format.md promises of samples: a hole of the distance, or of a page up to 256 KiB, is found wherever it is.
func TestPayloadSumFindsAHole(t *testing.T) {
	for _, n := range []int{4097, 65536, 65537, 262144, 300001, 1 << 20, 3<<20 + 5} {
		payload := random(n)
		want := PayloadSum(payload, 0, false)
		for at := 0; at < n; at += 1021 {
			hole := payload[at:min(at+distance(n), n)]
			was := bytes.Clone(hole)
			clear(hole)
			require.NotEqual(t, want, PayloadSum(payload, 0, false), "%d bytes, %d lost at %d", n, distance(n), at)
			copy(hole, was)
		}
	}
}

func TestPayloadSumDoesNotAllocate(t *testing.T) {
	for _, n := range sumSizes {
		payload := random(n)
		for _, full := range []bool{false, true} {
			require.Zero(t, testing.AllocsPerRun(10, func() { PayloadSum(payload, 40, full) }), "%d bytes, full %t", n, full)
		}
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32()) | 1 // no zeros, which would look like a hole
	}
	return b
}
