package model

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The ids that are none, of docs/format.md.
const (
	deadID = math.MaxUint32
	goneID = deadID - 1
)

// Pool is the pool of docs/format.md as a list of who owns each unit. A pool may place a chunk
// wherever units are free, and its caller decides which unneeded chunk is freed.
// So the model predicts nothing: it gets what a pool did, and returns what is wrong with that.
// Which objects of a store are needed is a matter of fuzz/storetest.
type Pool struct {
	NextID uint32

	unit, first int
	owners      []int // ids of the chunks that have the units, noOwner if none
	chunks      map[uint32]*poolChunk
	freed       map[int]bool // first units of chunks whose bytes belong to no chunk since
}

const noOwner = -1

type poolChunk struct {
	at, units, size int    // in units from the first; bytes with the header
	header          uint32 // the id that has to be there
}

// NewPool makes an empty pool of size bytes behind dataOffset others, whose chunks begin and end at
// multiples of unit bytes.
func NewPool(size, dataOffset, unit int, firstID uint32) *Pool {
	p := &Pool{NextID: firstID, unit: unit, first: Offset(-dataOffset, unit), chunks: map[uint32]*poolChunk{},
		freed: map[int]bool{}}
	for range max(size-p.first, 0) / unit {
		p.owners = append(p.owners, noOwner)
	}
	return p
}

func (p *Pool) units(payload int) int { return (payload + header + p.unit - 1) / p.unit }

// Alloc is that a chunk was placed.
func (p *Pool) Alloc(payload int, address uint64, id uint32) error {
	for p.chunks[p.NextID] != nil {
		p.NextID = after(p.NextID)
	}
	if id != p.NextID {
		return fmt.Errorf("the id %d is not the next one that no chunk has, %d", id, p.NextID)
	}
	p.NextID = after(id)
	at := int(address) - p.first
	if payload <= 0 || at < 0 || at%p.unit != 0 || at/p.unit+p.units(payload) > len(p.owners) {
		return fmt.Errorf("a payload of %d bytes at address %d: chunks lie at %d and multiples of %d from there, within %d of them", payload, address, p.first, p.unit, len(p.owners))
	}
	c := &poolChunk{at: at / p.unit, units: p.units(payload), size: payload + header, header: goneID}
	for i := c.at; i < c.at+c.units; i++ {
		if p.owners[i] != noOwner {
			return fmt.Errorf("chunk %d at address %d takes bytes of chunk %d", id, address, p.owners[i])
		}
		p.owners[i] = int(id)
		delete(p.freed, i) // the header that stood here is the new chunk's to overwrite
	}
	p.chunks[id] = c
	return nil
}

// Refuse is that a chunk was not placed.
func (p *Pool) Refuse(payload int) error {
	if payload <= 0 || payload > p.unit*len(p.owners) {
		return nil
	}
	run := 0
	for i, owner := range p.owners {
		if run++; owner != noOwner {
			run = 0
		}
		if run == p.units(payload) {
			return fmt.Errorf("%d bytes were refused, and %d units up to number %d are free", payload, run, i)
		}
	}
	return nil
}

// Publish is that handles begin to match.
func (p *Pool) Publish(id uint32) error { return p.set(id, id) }

// Kill is that handles stop to match.
func (p *Pool) Kill(id uint32) error { return p.set(id, deadID) }

// Free notes that the bytes of a chunk are free.
func (p *Pool) Free(id uint32) error {
	if err := p.set(id, deadID); err != nil {
		return err
	}
	c := p.chunks[id]
	for i := c.at; i < c.at+c.units; i++ {
		p.owners[i] = noOwner
	}
	p.freed[c.at] = true
	delete(p.chunks, id)
	return nil
}

func (p *Pool) set(id, inHeader uint32) error {
	c, ok := p.chunks[id]
	if !ok {
		return fmt.Errorf("there is no chunk %d", id)
	}
	c.header = inHeader
	return nil
}

// Check compares the headers in memory with what docs/format.md has for each moment.
func (p *Pool) Check(memory []byte) error {
	word := func(at, offset int) uint32 {
		return binary.LittleEndian.Uint32(memory[p.first+at*p.unit+offset:])
	}
	for id, c := range p.chunks {
		if got, size := word(c.at, 0), word(c.at, 4); got != c.header || size != uint32(c.size) {
			return fmt.Errorf("chunk %d: the header has id %d and %d bytes, want %d and %d", id, got, size, c.header,
				c.size)
		}
	}
	for at := range p.freed {
		if got := word(at, 0); got != deadID {
			return fmt.Errorf("where a chunk was freed, at address %d, the id is %d, and no dead one",
				p.first+at*p.unit, got)
		}
	}
	return nil
}
