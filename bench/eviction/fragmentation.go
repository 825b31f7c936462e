package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ringcache/ringcache/bench/internal/policy"
)

// site is a deployment with one dtype, and its trace of popular items.
type site struct {
	name string
	uses []*policy.Item
}

const (
	siteUses     = 40000
	siteCapacity = 4 * gib
)

// sites are all families alone, all behind one cache, and large videos beside
// images, with every dtype.
func sites() (all []site) {
	type load struct {
		name     string
		families []family
		draw     func(*deployment) []*policy.Item
	}
	popular := func(d *deployment) []*policy.Item { return zipfian(d, siteUses, 1.0) }
	var loads []load
	for i, f := range families[:len(families)-1] { // audio alone has one small size
		loads = append(loads, load{f.name, families[i : i+1], popular})
	}
	loads = append(loads,
		load{"all families", families, popular},
		load{"video + images", families, func(d *deployment) []*policy.Item { return mixed(d, siteUses, 0) }})
	for _, l := range loads {
		for _, dtype := range []int{1, 2, 4} {
			d := &deployment{families: l.families, dtype: dtype,
				rng: rand.New(rand.NewPCG(uint64(dtype), uint64(len(all))))}
			all = append(all, site{fmt.Sprintf("%s, %s", l.name, dtypes[dtype]), l.draw(d)})
		}
	}
	return all
}

// waste is what one cache does with its room, once it is full.
type waste struct {
	used, least float64 // share of the bytes that items take
	hole        float64 // the largest run that is free, of all that is
	blocked     float64 // share of the puts
	padding     float64 // share of the bytes
}

func wasteOf(b *occupancy) waste {
	puts := float64(max(b.puts, 1))
	return waste{b.used / puts, b.least, b.hole / puts, float64(b.blocked) / puts, b.padding / puts}
}

// measure replays the site in a ring and in a pool. They count once they have
// been full for a while.
func (s site) measure(inFlight int) (ring, pool waste) {
	const warm = siteCapacity * 3 / 2
	largest := slices.MaxFunc(s.uses, func(a, b *policy.Item) int { return cmp.Compare(a.Size, b.Size) }).Size
	for _, c := range []placed{
		newRingCache(siteCapacity, warm, largest, newLeases(inFlight, 0)),
		newPoolCache(siteCapacity, warm, newLeases(inFlight, 0)),
	} {
		replay(s.uses, c)
		ring, pool = pool, wasteOf(c.account())
		c.close()
	}
	return ring, pool
}

var inFlights = []int{0, 16, 64}

func printFragmentation() {
	all := sites()
	type both struct{ ring, pool waste }
	got := make([][]both, len(inFlights))
	for k := range got {
		got[k] = make([]both, len(all))
	}
	each(len(all)*len(inFlights), func(i int) {
		k, i := i/len(all), i%len(all)
		got[k][i].ring, got[k][i].pool = all[i].measure(inFlights[k])
	})
	const head = " ring: used (least) | hole | padding | blocked | pool: used (least) | hole | blocked |\n"
	const line = " ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
	show := func(name string, ring, pool waste) {
		fmt.Printf("| %s | %.1f (%.1f) | %.2f | %.2f | %.2f | %.1f (%.1f) | %.2f | %.2f |\n", name,
			100*ring.used, 100*ring.least, ring.hole, 100*ring.padding, 100*ring.blocked,
			100*pool.used, 100*pool.least, pool.hole, 100*pool.blocked)
	}
	for k, n := range inFlights {
		if n == 16 {
			fmt.Printf("A full cache of %d GiB with %d requests in flight. Used, padding and blocked in %%.\n\n",
				siteCapacity/gib, n)
			fmt.Print("| deployment |" + head + "| --- |" + line)
			for i, s := range all {
				show(s.name, got[k][i].ring, got[k][i].pool)
			}
		}
	}
	fmt.Print("\nMeans over all deployments; the least of the least.\n\n| in flight |" + head + "| --- |" + line)
	for k, n := range inFlights {
		var ring, pool []waste
		for _, b := range got[k] {
			ring, pool = append(ring, b.ring), append(pool, b.pool)
		}
		show(fmt.Sprint(n), meanWaste(ring), meanWaste(pool))
	}
	fmt.Println()
}

func meanWaste(all []waste) waste {
	m := waste{least: 1}
	n := float64(len(all))
	for _, w := range all {
		m.used += w.used / n
		m.least = min(m.least, w.least)
		m.hole += w.hole / n
		m.blocked += w.blocked / n
		m.padding += w.padding / n
	}
	return m
}
