package sidecar

import (
	"fmt"
	"os"
	"testing"
)

// inFile makes a sidecar in shared memory with n readers that have a slot, each with one chunk named.
func inFile(b *testing.B, readers, held int) *File {
	b.Helper()
	dir := b.TempDir()
	seg, err := os.Create(dir + "/s")
	if err != nil {
		b.Fatal(err)
	}
	f, err := Create(dir, "s", Options{Policy: Pool, Objects: 1000, Slots: 64}, seg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = f.Close(), seg.Close() })
	for i := range readers {
		r, err := Open(dir, "s")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = r.Close() })
		slot, err := r.TakeSlot(i)
		if err != nil {
			b.Fatal(err)
		}
		for id := range held {
			slot.Hold(uint32(id))
		}
	}
	return f
}

func BenchmarkHeld(b *testing.B) {
	for _, c := range [][2]int{{0, 0}, {1, 0}, {4, 0}, {4, 1}} {
		b.Run(fmt.Sprintf("readers=%d/each=%d", c[0], c[1]), func(b *testing.B) {
			f := inFile(b, c[0], c[1])
			b.ReportAllocs()
			for b.Loop() {
				f.Held()
			}
		})
		b.Run(fmt.Sprintf("of-another/readers=%d/each=%d", c[0], c[1]), func(b *testing.B) {
			f := inFile(b, c[0], c[1])
			b.ReportAllocs()
			for b.Loop() {
				f.HeldOf([]uint32{1000})
			}
		})
	}
}

func BenchmarkTable(b *testing.B) {
	f := inFile(b, 0, 0)
	r := Record{Address: 64, ID: 7, Size: 4096, DescriptionOffset: 100, DescriptionLength: 50}
	b.Run("put-drop", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Drop(f.Put(r, 5))
		}
	})
	i := f.Put(r, 5)
	b.Run("set-use", func(b *testing.B) {
		b.ReportAllocs()
		for n := uint64(0); b.Loop(); n++ {
			f.SetUse(i, n)
		}
	})
}

func BenchmarkPayloadSum(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10, 1 << 20, 24 << 20} {
		payload := make([]byte, n)
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchSum(payload)
			}
		})
	}
}
