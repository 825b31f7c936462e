package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDiffers: every byte counts, wherever it is.
func TestDiffers(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 16, 31, 4096} {
		m := make([]byte, n)
		fill(m, 7)
		assert.Equal(t, -1, differs(m, 7), "%d bytes", n)
		for i := range m {
			m[i] ^= 1
			if got := differs(m, 7); got != i {
				t.Fatalf("byte %d of %d: found at %d", i, n, got)
			}
			m[i] ^= 1
		}
	}
	m := make([]byte, 4096)
	fill(m, 7)
	assert.GreaterOrEqual(t, differs(m, 8), 0, "another sequence")
	fill(m[:2048], 7)
	copy(m[2048:], m[:2048])
	assert.GreaterOrEqual(t, differs(m, 7), 2048, "the same sequence at another place")
}

// TestSlots: payloads don't overlap, and begin at the offset behind a page.
func TestSlots(t *testing.T) {
	for _, size := range []int{4000, 4096, 64 * kib, mib} {
		m := make([]byte, ringSize(4*mib, size))
		s := slotsOf(len(m), size)
		assert.GreaterOrEqual(t, s.count*size, 4*mib)
		for i := range s.count {
			for j := range s.at(m, 12, i) {
				m[i*s.stride+12+j]++
			}
		}
		for i, c := range m {
			inside := i%s.stride >= 12 && i%s.stride < 12+size
			if (c == 1) != inside {
				t.Fatalf("size %d: byte %d was in %d payloads", size, i, c)
			}
		}
		assert.Zero(t, s.stride%4096)
		assert.Same(t, &s.at(m, 0, 0)[0], &s.at(m, 0, s.count)[0], "after the last slot comes the first")
	}
}
