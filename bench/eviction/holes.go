package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ringcache/ringcache/shmring"
)

// space gives out runs of bytes. What it returns is the key to free them.
type space interface {
	alloc(size int64) (key int64, ok bool)
	free(key int64)
	largest() int64
}

// poolSpace is the real one.
type poolSpace struct {
	mem  *memory
	pool *shmring.Pool
}

func (p poolSpace) alloc(size int64) (int64, bool) {
	_, id, _, err := p.pool.Alloc(int(size))
	p.mem.touch()
	return int64(id), err == nil
}
func (p poolSpace) free(key int64) { p.pool.Free(uint32(key)) }
func (p poolSpace) largest() int64 { return int64(p.pool.Largest()) }

// fitSpace takes its holes by another rule, so that the pool's can be judged.
type fitSpace struct {
	holes []hole // by offset, no two of them neighbours
	sizes map[int64]int64
	// fit returns the hole to take, -1 if none is large enough, and whether its
	// upper end is used.
	fit func(holes []hole, size int64) (i int, upper bool)
}

type hole struct{ off, size int64 }

func newFitSpace(size int64, fit func([]hole, int64) (int, bool)) *fitSpace {
	return &fitSpace{holes: []hole{{0, size}}, sizes: map[int64]int64{}, fit: fit}
}

func (f *fitSpace) alloc(size int64) (int64, bool) {
	size = f.extent(size)
	i, upper := f.fit(f.holes, size)
	if i < 0 {
		return 0, false
	}
	h := &f.holes[i]
	off := h.off
	if upper {
		off += h.size - size
	} else {
		h.off += size
	}
	if h.size -= size; h.size == 0 {
		f.holes = slices.Delete(f.holes, i, i+1)
	}
	f.sizes[off] = size
	return off, true
}

// granule is the unit of a pool without options.
const granule = 64

// extent is what the pool would take for it, too.
func (*fitSpace) extent(size int64) int64 {
	return (size + shmring.HeaderSize + granule - 1) / granule * granule
}

func (f *fitSpace) free(off int64) {
	h := hole{off, f.sizes[off]}
	delete(f.sizes, off)
	i, _ := slices.BinarySearchFunc(f.holes, off, func(h hole, off int64) int { return cmp.Compare(h.off, off) })
	if i < len(f.holes) && f.holes[i].off == off+h.size {
		h.size += f.holes[i].size
		f.holes = slices.Delete(f.holes, i, i+1)
	}
	if i > 0 && f.holes[i-1].off+f.holes[i-1].size == off {
		f.holes[i-1].size += h.size
		return
	}
	f.holes = slices.Insert(f.holes, i, h)
}

func (f *fitSpace) largest() (n int64) {
	for _, h := range f.holes {
		n = max(n, h.size)
	}
	return n
}

func bestFit(holes []hole, size int64) (best int, upper bool) {
	best = -1
	for i, h := range holes {
		if h.size >= size && (best < 0 || h.size < holes[best].size) {
			best = i
		}
	}
	return best, false
}

func firstFit(holes []hole, size int64) (int, bool) {
	return slices.IndexFunc(holes, func(h hole) bool { return h.size >= size }), false
}

// twoEnds puts what is larger than limit at the highest address.
func twoEnds(limit int64) func([]hole, int64) (int, bool) {
	return func(holes []hole, size int64) (int, bool) {
		if size <= limit {
			return firstFit(holes, size)
		}
		for i := len(holes) - 1; i >= 0; i-- {
			if holes[i].size >= size {
				return i, true
			}
		}
		return -1, false
	}
}

// churn fills a space until one item does not fit and frees a random half of
// the items, again and again. It returns the mean share of the bytes used when
// full, and the largest hole of the bytes that are free with half of the items.
// Nothing is evicted for a place.
func churn(s space, d *deployment, capacity int64) (full, fits float64) {
	const rounds, warm = 60, 20
	type chunk struct{ key, size int64 }
	var live []chunk
	var used int64
	for round := range rounds {
		for {
			it := d.item(nil)
			key, ok := s.alloc(it.Size)
			if !ok {
				break
			}
			live = append(live, chunk{key, it.Size})
			used += it.Size
		}
		before := used
		d.rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		half := len(live) / 2
		for _, c := range live[half:] {
			s.free(c.key)
			used -= c.size
		}
		live = live[:half]
		if round >= warm {
			full += float64(before) / float64(capacity) / (rounds - warm)
			fits += float64(s.largest()) / float64(capacity-used) / (rounds - warm)
		}
	}
	return full, fits
}

func printHoles() {
	const capacity = siteCapacity
	fmt.Printf("Without eviction: %d GiB are filled until one item finds no hole, and a random half of the items is freed, many times.\n", capacity/gib)
	fmt.Print("Bytes used when full / the largest hole of the free bytes after that half is gone, in %.\n\n" +
		"| deployment | pool | best fit | first fit | two ends |\n| --- | ---: | ---: | ---: | ---: |\n")
	for i, families := range [][]family{families[:1], families[1:2], families[4:5], families} {
		deploy := func() *deployment {
			return &deployment{families: families, dtype: 2, rng: rand.New(rand.NewPCG(1, uint64(i)))}
		}
		d := deploy()
		fmt.Printf("| %s |", d)
		m := newMemory(capacity)
		for _, s := range []space{
			poolSpace{m, shmring.NewPool(m.buf, shmring.PoolOptions{})},
			newFitSpace(capacity, bestFit), newFitSpace(capacity, firstFit),
			newFitSpace(capacity, twoEnds(int64(d.meanSize(nil)))),
		} {
			full, fits := churn(s, deploy(), capacity)
			fmt.Printf(" %.1f / %.1f |", 100*full, 100*fits)
		}
		m.close()
		fmt.Println()
	}
	fmt.Println()
}
