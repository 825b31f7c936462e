package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringcache/ringcache/shmring"
)

// search is what puts cost that have to evict. Times are by put. Their median is
// steadier than their mean where others use the machine too.
type search struct {
	all, look []time.Duration
	looked    int // chunks whose value was asked for
	evicted   int
}

// filler is a pool of chunks of 0.25 to 1 MiB, about as many as asked for, each
// with a random value. It is only as much of a cache as a search needs.
type filler struct {
	rng    *rand.Rand
	mem    *memory
	pool   *shmring.Pool
	values map[uint32]float64
	looked int
}

func newFiller(chunks int) *filler {
	m := newMemory(int64(chunks) * 5 / 8 * mib)
	f := &filler{rand.New(rand.NewPCG(1, 2)), m, shmring.NewPool(m.buf, shmring.PoolOptions{}), map[uint32]float64{}, 0}
	f.fill()
	return f
}

func (f *filler) size() int { return mib/4 + f.rng.IntN(mib*3/4) }

// fill puts small chunks until there is no room.
func (f *filler) fill() {
	for f.alloc(f.size()) == nil {
	}
}

func (f *filler) alloc(size int) error {
	_, id, _, err := f.pool.Alloc(size)
	if err == nil {
		f.mem.touch()
		f.values[id] = f.rng.Float64()
	}
	return err
}

func (f *filler) value(id uint32, _ any) (float64, bool) {
	f.looked++
	return f.values[id], true
}

// put evicts for a chunk and puts it, if it must evict.
func (f *filler) put(size int, s *search) {
	begin := time.Now()
	if f.alloc(size) == nil {
		return
	}
	before := f.looked
	at := time.Now()
	victims, _ := f.pool.Cheapest(nil, size, f.value)
	s.look = append(s.look, time.Since(at))
	for _, id := range victims {
		f.pool.Free(id)
		delete(f.values, id)
	}
	if err := f.alloc(size); err != nil {
		panic(err)
	}
	s.all = append(s.all, time.Since(begin))
	s.looked += f.looked - before
	s.evicted += len(victims)
}

// measureSearch puts chunks, of the usual sizes if size is 0. After a large one
// small ones fill its place again, which is not part of the cost.
func measureSearch(chunks, size, puts int) search {
	f := newFiller(chunks)
	defer f.mem.close()
	var s search
	for len(s.all) < puts {
		if size == 0 {
			f.put(f.size(), &s)
			continue
		}
		id := f.pool.NextID()
		f.put(size, &s)
		f.pool.Free(id)
		delete(f.values, id)
		f.fill()
	}
	return s
}

// micro is the median in microseconds.
func micro(all []time.Duration) float64 {
	slices.Sort(all)
	return all[len(all)/2].Seconds() * 1e6
}

func printCosts() {
	fmt.Print("Cost of a put that has to evict, without the copy: a pool full of chunks of 0.25 to 1 MiB with random values. Times are medians.\n\n" +
		"| chunks | put | µs | of that the search | chunks looked at | evicted |\n| ---: | --- | ---: | ---: | ---: | ---: |\n")
	for _, chunks := range []int{100, 1000, 10000, 100000} {
		for _, p := range []struct {
			name string
			size int
			puts int
		}{{"the same sizes", 0, 4000}, {"4 MiB", 4 * mib, 1000}, {"32 MiB", 32 * mib, 300}} {
			s := measureSearch(chunks, p.size, p.puts)
			n := float64(len(s.all))
			fmt.Printf("| %d | %s | %.1f | %.1f | %.0f | %.1f |\n", chunks, p.name,
				micro(s.all), micro(s.look), float64(s.looked)/n, float64(s.evicted)/n)
		}
	}
}
