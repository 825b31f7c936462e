package sizing

import (
	"math"
	"math/rand/v2"
	"sort"
)

// Shape is a load of independent look-ups, one in each request.
type Shape struct {
	Objects int     // that are asked for again and again
	Zipf    float64 // the n-th of them is asked for as often as n to the power of -Zipf
	Once    float64 // the share of look-ups of objects that nobody asks for again
	Bytes   int64   // of each object
}

// How far a replay goes. Of more objects than there can be in the levels of a host, several are one: a host with
// a tenth of the bytes has a tenth of the objects.
const (
	mostPlaces = 50_000 // objects that the levels of the host have room for
	turnover   = 5      // look-ups for each of them
	leastUses  = 100_000
)

// draws are look-ups of a shape. A key below len(sum) stands for group objects that are as popular as
// each other, nearly; the others are asked for once.
type draws struct {
	rng   *rand.Rand
	sum   []float64 // of the weights, up to each key
	group int
	once  float64
	next  int32 // the next key that is asked for once
}

func (s Shape) draws(rng *rand.Rand, group int) *draws {
	d := &draws{rng: rng, sum: make([]float64, (s.Objects+group-1)/group), group: group, once: s.Once}
	total := 0.0
	for i := range s.Objects {
		total += math.Pow(float64(i+1), -s.Zipf)
		d.sum[i/group] = total
	}
	d.next = int32(len(d.sum))
	return d
}

// share returns the share of look-ups that are of a key.
func (d *draws) share(key int) float64 {
	below := 0.0
	if key > 0 {
		below = d.sum[key-1]
	}
	return (1 - d.once) * (d.sum[key] - below) / d.sum[len(d.sum)-1]
}

func (d *draws) draw() int32 {
	if d.once > 0 && d.rng.Float64() < d.once {
		d.next++
		return d.next - 1
	}
	at := sort.SearchFloat64s(d.sum, d.rng.Float64()*d.sum[len(d.sum)-1])
	return int32(min(at, len(d.sum)-1))
}

// class is objects that are about as popular.
type class struct {
	objects float64
	rate    float64 // how often a host looks one up, for each of its look-ups
	missed  float64 // the share of these that the host answers from none of its levels
	again   gaps    // of these misses
}

// perOctave is how many classes there are for each doubling of the rank, and ends of gaps for each of the time.
const perOctave = 4

// gaps are the shares of an object's misses that follow on the one before within 2^(i/perOctave) look-ups of the host.
type gaps [40 * perOctave]float64

// gapEnds are the ends of gaps.
var gapEnds = func() (ends gaps) {
	for i := range ends {
		ends[i] = math.Exp2(float64(i) / perOctave)
	}
	return ends
}()

// within returns the share of misses that follow on the one before within a time, and how long it is from a miss to
// the next one in the mean, if none is longer than that time. Gaps that are longer than the replay are not in g: the
// share is at least that of misses that come at random, as often as these.
func (g *gaps) within(t, rate float64) (share, mean float64) {
	before, end := 0.0, 0.0
	for i, e := range gapEnds {
		seen := g[i]
		if e > t {
			seen = before + max(seen-before, 0)*(t-end)/(e-end)
			e = t
		}
		share = max(seen, 1-math.Exp(-rate*e))
		mean += (e - end) * (1 - (before+share)/2)
		if before, end = share, e; e == t {
			break
		}
	}
	return share, mean
}

// replay returns where one of equal hosts finds objects, and what it does not find of each class. A host that has room
// for more objects than most is replayed as a smaller one.
func (s Shape) replay(memory, disk, most int64) (found [Nowhere + 1]float64, all []class) {
	places := min(memory/s.Bytes+disk/s.Bytes, int64(s.Objects))
	group := int(max(1, (places+most-1)/most))
	d := s.draws(rand.New(rand.NewPCG(1, 2)), group)
	memory, disk = memory/int64(group), disk/int64(group)
	h := NewHost(memory, disk)
	h.fill(len(d.sum), s.Bytes)

	classOf := func(key int) int { return int(perOctave * math.Log2(float64(key+1))) }
	all = make([]class, classOf(len(d.sum)-1)+1)
	asked, missed := make([]float64, len(all)), make([]float64, len(all))
	last := make([]int, len(d.sum)) // the last miss of each key, 0 if there was none
	uses := max(leastUses, turnover*int(places)/group)
	for now := 1; now <= 2*uses; now++ {
		key := int(d.draw())
		at := h.Use(int32(key), none, s.Bytes)
		measured := now > uses
		if measured {
			found[at] += 1 / float64(uses)
		}
		if key >= len(last) {
			continue
		}
		c := classOf(key)
		if measured {
			asked[c]++
		}
		if at != Nowhere {
			continue
		}
		if measured {
			missed[c]++
			if last[key] > 0 {
				after := math.Log2(float64((now - last[key]) * group))
				all[c].again[min(int(math.Ceil(perOctave*after)), len(gapEnds)-1)]++
			}
		}
		last[key] = now
	}
	for key := range d.sum {
		c := &all[classOf(key)]
		c.objects += float64(group)
		c.rate += d.share(key)
	}
	for i := range all {
		c := &all[i]
		if c.objects > 0 {
			c.rate /= c.objects
		}
		if c.missed = 1; asked[i] > 0 {
			c.missed = missed[i] / asked[i]
		}
		sum := 0.0
		for j, n := range c.again {
			sum += n
			c.again[j] = sum / max(missed[i], 1)
		}
	}
	return found, all
}

// fill stores the most popular objects in each level, the most popular last: near what the levels come to, which
// would take long from empty ones.
func (h Host) fill(keys int, bytes int64) {
	for _, l := range []*Level{h.memory, h.disk} {
		if l == nil {
			continue
		}
		for key := min(int64(keys), l.capacity/bytes) - 1; key >= 0; key-- {
			l.Put(int32(key), none, bytes)
		}
	}
}
