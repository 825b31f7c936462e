package shmring

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/internal/mem"
)

func newPool(t testing.TB, size, dataOffset int) (*Pool, []byte) {
	t.Helper()
	m := make([]byte, size)
	p := NewPool(m, PoolOptions{DataOffset: dataOffset})
	t.Cleanup(func() { require.NoError(t, p.CheckStructure()) })
	return p, m
}

// With a larger unit, what stands Lead bytes behind the begin of each chunk is aligned to
// it, and nothing else changes: chunks don't overlap, and what was freed can be had again.
func TestPoolOfALargerUnit(t *testing.T) {
	for _, unit := range []int{64, 128, 4096} {
		for _, offset := range []int{0, 32, 100} {
			for _, lead := range []int{0, 64, 128} {
				t.Run(fmt.Sprintf("%d bytes, %d in front, %d lead", unit, offset, lead), func(t *testing.T) {
					const size = 64 << 10
					p := NewPool(make([]byte, size), PoolOptions{DataOffset: offset, Granule: unit, Lead: lead})
					require.LessOrEqual(t, p.room(), uint64(size))
					require.Greater(t, p.room(), uint64(size-2*unit))
					var ids []uint32
					for n := 1; ; n = n*3%9001 + 1 {
						address, id, payload, err := p.Alloc(n)
						if err != nil {
							require.ErrorIs(t, err, ErrFull)
							break
						}
						require.Len(t, payload, n)
						require.Zero(t, (address+uint64(offset+lead))%uint64(unit))
						require.Equal(t, p.Extent(n), p.live[id].len)
						require.Zero(t, p.Extent(n)%uint64(unit))
						require.NoError(t, p.CheckStructure())
						ids = append(ids, id)
					}
					for i, id := range ids {
						if i%2 == 0 {
							p.Free(id)
						}
					}
					require.NoError(t, p.CheckStructure())
					for i, id := range ids {
						if i%2 == 1 {
							p.Free(id)
						}
					}
					require.Equal(t, p.room(), p.Largest())
					_, _, _, err := p.Alloc(int(p.room()) - HeaderSize)
					require.NoError(t, err)
				})
			}
		}
	}
	for _, o := range []PoolOptions{{Granule: 32}, {Granule: 96}, {Lead: 32}, {Lead: -64}} {
		require.Panics(t, func() { NewPool(make([]byte, 4096), o) }, "%+v", o)
	}
}

func TestPoolPlacesChunksAtGranulesOfTheSegment(t *testing.T) {
	for _, offset := range []int{0, 32, 64, 100} {
		t.Run(fmt.Sprint("data offset ", offset), func(t *testing.T) {
			p, _ := newPool(t, 10_000, offset)
			for _, n := range []int{1, 52, 56, 57, 500} {
				address, id, payload, err := p.Alloc(n)
				require.NoError(t, err)
				require.Zero(t, (address+uint64(offset))%granule)
				require.Len(t, payload, n)
				_, err = ReadChunk(p.buf, address)
				require.NoError(t, err)
				dead, err := ReadChunk(p.buf, address)
				require.NoError(t, err)
				require.NotEqual(t, id, dead.ID, "no handle is good before Publish")
				p.Publish(id)
				c, err := ReadChunk(p.buf, address)
				require.NoError(t, err)
				require.Equal(t, id, c.ID)
				require.Equal(t, n+HeaderSize, c.Size)
			}
		})
	}
}

func TestPoolFreesInAnyOrderAndMerges(t *testing.T) {
	p, m := newPool(t, 32+64*8, 32)
	var ids []uint32
	for range 8 {
		a, id, _, err := p.Alloc(56)
		require.NoError(t, err)
		p.Publish(id)
		ids = append(ids, id)
		require.Equal(t, uint64(32+64*(len(ids)-1)), a)
	}
	_, _, _, err := p.Alloc(1)
	require.ErrorIs(t, err, ErrFull)
	require.Zero(t, p.Largest())
	for _, i := range []int{3, 5, 4} {
		p.Free(ids[i])
		require.NoError(t, p.CheckStructure())
		c, err := ReadChunk(m, uint64(32+64*i))
		require.NoError(t, err)
		require.Equal(t, uint32(DeadID), c.ID, "a stale handle fails at once")
	}
	require.Equal(t, uint64(3*64), p.Largest())
	a, id, _, err := p.Alloc(3*64 - HeaderSize)
	require.NoError(t, err)
	require.Equal(t, uint64(32+64*3), a)
	require.Equal(t, uint32(8), id, "ids only rise")
	p.Free(99) // no such chunk
	for id := range maps.Clone(p.live) {
		p.Free(id)
	}
	require.Zero(t, p.Used())
	_, id, _, err = p.Alloc(int(p.room()) - HeaderSize)
	require.NoError(t, err)
	require.Equal(t, uint32(9), id)
}

func TestPoolErrors(t *testing.T) {
	p, _ := newPool(t, 1000, 32)
	_, _, _, err := p.Alloc(0)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "allocation of 0 bytes")
	_, _, _, err = p.Alloc(960)
	var never *TooLargeError
	require.ErrorAs(t, err, &never)
	require.Equal(t, 960, never.Limit)
	_, _, _, err = p.Alloc(952)
	require.NoError(t, err)
	var full *FullError
	_, _, _, err = p.Alloc(1)
	require.ErrorAs(t, err, &full)
	require.Equal(t, FullError{Need: 9, Used: 960, Size: 1000}, *full)

	tiny := NewPool(make([]byte, 60), PoolOptions{DataOffset: 32})
	_, _, _, err = tiny.Alloc(1)
	require.ErrorIs(t, err, ErrTooLarge)
	require.NoError(t, tiny.CheckStructure())
	require.Panics(t, func() { NewPool(nil, PoolOptions{FirstID: IDLimit}) })
}

func TestPoolIDsStartOverAndSkipLivingOnes(t *testing.T) {
	p, _ := newPool(t, 1000, 0)
	_, zero, _, err := p.Alloc(10)
	require.NoError(t, err)
	require.Zero(t, zero)
	p.nextID = IDLimit - 1
	_, last, _, err := p.Alloc(10)
	require.NoError(t, err)
	require.Equal(t, uint32(IDLimit-1), last)
	_, next, _, err := p.Alloc(10)
	require.NoError(t, err)
	require.Equal(t, uint32(1), next)
}

// Cheapest is compared with trying every run.
func TestPoolCheapestIsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 12
		p := NewPool(make([]byte, n*granule), PoolOptions{})
		var ids []uint32
		for used := 0; used < n; {
			g := rapid.IntRange(1, min(3, n-used)).Draw(t, "granules")
			_, id, _, err := p.Alloc(g*granule - HeaderSize)
			require.NoError(t, err)
			ids = append(ids, id)
			used += g
		}
		costs := map[uint32]float64{}
		for _, id := range ids {
			switch rapid.IntRange(0, 3).Draw(t, "fate") {
			case 0:
				p.Free(id)
			case 1: // may not be freed
			default:
				costs[id] = float64(rapid.IntRange(0, 20).Draw(t, "cost"))
			}
		}
		cost := func(id uint32) (float64, bool) { c, ok := costs[id]; return c, ok }
		need := rapid.IntRange(1, 8).Draw(t, "need")*granule - HeaderSize

		var blocks []*block
		for b := p.first; b != nil; b = b.next {
			blocks = append(blocks, b)
		}
		best := -1.0
		for i := range blocks {
			sum, length := 0.0, uint64(0)
			for _, b := range blocks[i:] {
				c, ok := 0.0, true
				if !b.free {
					c, ok = cost(b.id)
				}
				if !ok {
					break
				}
				sum, length = sum+c, length+b.len
				if length >= p.opt.extent(need) {
					if best < 0 || sum < best {
						best = sum
					}
					break
				}
			}
		}
		got, ok := p.Cheapest(need, cost)
		require.Equal(t, best >= 0, ok)
		if !ok {
			return
		}
		sum := 0.0
		for _, id := range got {
			sum += costs[id]
			p.Free(id)
		}
		require.Equal(t, best, sum)
		_, _, _, err := p.Alloc(need)
		require.NoError(t, err, "the run makes room")
		require.NoError(t, p.CheckStructure())
	})
}

// Of a large pool a search looks at a part, and still finds what there is.
func TestPoolCheapestFindsTheOnlyRunOfALargePool(t *testing.T) {
	const n = 3*minWalk + 5
	p, _ := newPool(t, n*granule, 0)
	for range n {
		_, _, _, err := p.Alloc(1)
		require.NoError(t, err)
	}
	for _, only := range []uint32{0, 77, n/2 - 1, n - 2, 5} {
		ids, ok := p.Cheapest(2*granule-HeaderSize, func(id uint32) (float64, bool) { return 1, id == only || id == only+1 })
		require.True(t, ok, only)
		require.Equal(t, []uint32{only, only + 1}, ids)
	}
	_, ok := p.Cheapest(1, func(uint32) (float64, bool) { return 0, false })
	require.False(t, ok)
	seen := map[uint32]bool{}
	for range 8 {
		ids, ok := p.Cheapest(1, func(id uint32) (float64, bool) { return float64(n - id), true })
		require.True(t, ok)
		seen[ids[0]/minWalk] = true
	}
	require.Greater(t, len(seen), 2, "the searches go round")
}

// model is the pool as a list of who owns each granule.
func TestPoolAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset := rapid.SampledFrom([]int{0, 32}).Draw(t, "offset")
		size := rapid.IntRange(64, 6000).Draw(t, "size")
		m := make([]byte, size)
		p := NewPool(m, PoolOptions{DataOffset: offset})
		type chunk struct {
			address uint64
			n       int
			fill    byte
		}
		live := map[uint32]chunk{}
		check := func() {
			require.NoError(t, p.CheckStructure())
			require.Equal(t, len(live), p.Len())
			for id, c := range live {
				for _, b := range p.payload(p.live[id]) {
					require.Equal(t, c.fill, b, "chunk %d was overwritten", id)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.IntRange(1, size).Draw(t, "n")
				address, id, payload, err := p.Alloc(n)
				if err != nil {
					require.True(t, p.Largest() < p.opt.extent(n), "refused %d bytes with a hole of %d", n, p.Largest())
					return
				}
				fill := byte(id*7 + 1)
				for i := range payload {
					payload[i] = fill
				}
				p.Publish(id)
				live[id] = chunk{address, n, fill}
			},
			"free": func(t *rapid.T) {
				if len(live) == 0 {
					return
				}
				var ids []uint32
				for id := range live {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				id := rapid.SampledFrom(ids).Draw(t, "id")
				p.Free(id)
				delete(live, id)
			},
			"restore": func(t *rapid.T) {
				var placed []Chunk
				for id, c := range live {
					placed = append(placed, Chunk{Address: c.address, ID: id, Size: c.n + HeaderSize})
				}
				q := NewPool(m, PoolOptions{DataOffset: offset})
				require.Len(t, q.Restore(placed, p.NextID()), len(placed))
				require.Equal(t, p.NextID(), q.NextID())
				p = q
			},
			"": func(*rapid.T) { check() },
		})
	})
}

func TestPoolRestoreRefusesWhatCannotBe(t *testing.T) {
	good := Chunk{Address: 32, ID: 1, Size: 64}
	for name, c := range map[string]struct {
		in, want []Chunk
	}{
		"one":            {[]Chunk{good}, []Chunk{good}},
		"not aligned":    {[]Chunk{good, {Address: 100, ID: 2, Size: 64}}, []Chunk{good}},
		"in front":       {[]Chunk{good, {Address: 0, ID: 2, Size: 32}}, []Chunk{good}},
		"behind the end": {[]Chunk{good, {Address: 928, ID: 2, Size: 65}}, []Chunk{good}},
		"far away":       {[]Chunk{good, {Address: 1 << 62, ID: 2, Size: 64}}, []Chunk{good}},
		"no size":        {[]Chunk{good, {Address: 160, ID: 2, Size: 8}}, []Chunk{good}},
		"no id":          {[]Chunk{good, {Address: 160, ID: IDLimit, Size: 80}}, []Chunk{good}},
		"overlap":        {[]Chunk{good, {Address: 160, ID: 2, Size: 190}, {Address: 224, ID: 3, Size: 10}, {Address: 352, ID: 4, Size: 10}}, []Chunk{good, {Address: 352, ID: 4, Size: 10}}},
		"one id twice":   {[]Chunk{good, {Address: 160, ID: 2, Size: 20}, {Address: 224, ID: 2, Size: 10}}, []Chunk{good}},
		"up to the end":  {[]Chunk{{Address: 928, ID: 2, Size: 64}, good}, []Chunk{good, {Address: 928, ID: 2, Size: 64}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := make([]byte, 1000)
			p := NewPool(m, PoolOptions{DataOffset: 32})
			require.Equal(t, c.want, p.Restore(c.in, 5))
			for _, x := range c.want {
				mem.Store32(m[x.Address+sizeOffset:], uint32(x.Size))
				p.Publish(x.ID)
			}
			require.NoError(t, p.CheckStructure())
		})
	}
}

func BenchmarkPool(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("chunks=%d", n), func(b *testing.B) {
			p := NewPool(make([]byte, n*2048), PoolOptions{})
			var ids []uint32
			for i := range n {
				_, id, _, err := p.Alloc(100 + i*7919%1700)
				require.NoError(b, err)
				ids = append(ids, id)
			}
			for i := 0; b.Loop(); i++ {
				at := i * 7919 % n
				p.Free(ids[at])
				_, id, _, err := p.Alloc(100 + i*104729%1700)
				if err != nil {
					_, id, _, _ = p.Alloc(1)
				}
				ids[at] = id
			}
		})
	}
}
