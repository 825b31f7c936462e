package shmring

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// model is the ring as a list of chunks that are not allowed to overlap.
type model struct {
	id      uint32
	address uint64
	fill    byte
	size    int
}

func TestRingProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(9, 700).Draw(t, "size")
		o := RingOptions{
			Align:      rapid.SampledFrom([]int{0, 0, 8, 16, 64}).Draw(t, "align"),
			DataOffset: rapid.SampledFrom([]int{0, 32}).Draw(t, "offset"),
			FirstID:    rapid.SampledFrom([]uint32{0, IDLimit - 3}).Draw(t, "first"),
		}
		r := NewRing(make([]byte, size), o)
		var live []model
		for range rapid.IntRange(40, 200).Draw(t, "ops") {
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			default:
				n := rapid.IntRange(1, size/2+2).Draw(t, "n")
				a, id, payload, err := r.Alloc(n)
				if err != nil {
					if !errors.Is(err, ErrFull) && !errors.Is(err, ErrTooLarge) {
						t.Fatal(err)
					}
					if len(live) == 0 && errors.Is(err, ErrFull) {
						t.Fatalf("an empty ring refused %d bytes for now only: %v", n, err)
					}
					continue
				}
				if a >= 2*uint64(size) {
					t.Fatalf("address %d is not below %d", a, 2*size)
				}
				m := model{id, a, byte(id*31 + 7), n}
				for i := range payload {
					payload[i] = m.fill
				}
				live = append(live, m)
			case 6, 7, 8:
				k := rapid.IntRange(0, len(live)).Draw(t, "k")
				left := k
				freed := r.Free(func(uint32, []byte) bool { left--; return left >= 0 }, size)
				if len(freed) != k {
					t.Fatalf("freed %d of %d", len(freed), k)
				}
				for i, id := range freed {
					if id != live[i].id {
						t.Fatalf("freed %d, oldest is %d", id, live[i].id)
					}
				}
				live = live[k:]
			case 9:
				r.Clear()
				live = nil
			}
			if err := r.CheckStructure(); err != nil {
				t.Fatal(err)
			}
			for _, m := range live {
				c, err := ReadChunk(r.buf, m.address)
				if err != nil || c.ID != m.id || len(c.Payload) != m.size {
					t.Fatalf("chunk %+v: %+v, %v", m, c, err)
				}
				for _, b := range c.Payload {
					if b != m.fill {
						t.Fatalf("chunk %+v was overwritten", m)
					}
				}
			}
		}
	})
}
