package shmring

import (
	"fmt"
	"io/fs"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
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
