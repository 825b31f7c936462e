package sidecar

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/corpus"
	"github.com/ringcache/ringcache/shmring"
)

// FuzzFile: whatever stands in a sidecar, looking at it ends, and what is
// written to it can be read. The parts that matter are given, and the zeros
// between them are not, since the fuzzer is slow with long inputs.
func FuzzFile(f *testing.F) {
	corpus.Add(f, "sidecar")
	c, err := privateOf(formatted(f, Options{Policy: Pool, Objects: 2, Slots: 2}), true)
	require.NoError(f, err)
	for range c.Records() { // finds the free ones
		f.Fatal("there is none")
	}
	c.Put(record(3), 5)
	s, err := c.TakeSlot(1)
	require.NoError(f, err)
	s.Hold(3)
	header, states := c.mem[:offHeaderSum+4], c.mem[offState:offState+2*stateSize]
	slot, table := c.slot(0)[:slotHolds+8], c.mem[c.EntryOffset(0):]
	f.Add(header, states, slot, table, uint16(0), false)
	f.Add(header, states, slot, table, uint16(7), false)
	f.Add(header, states[:70], slot, table, uint16(0), true)
	f.Add([]byte(magic), []byte{}, []byte{}, table[:3], uint16(1), true)
	f.Add(header, states, []byte("\x01\x00\x00\x00\xff\xff\xff\xff"), table, uint16(0), true)
	f.Fuzz(func(t *testing.T, header, states, slot, table []byte, cut uint16, mend bool) {
		const slots = 2
		objects := min((len(table)+entrySize-1)/entrySize, 9)
		first := make([]byte, pageSize)
		copy(first[:offState], header)
		copy(first[offState:], states)
		const at = slotsStart
		b := make([]byte, at+slots*slotSize+objects*entrySize)
		copy(b, first)
		copy(b[offMarks+1:at], slot[:min(8, len(slot))]) // also behind the last slot
		copy(b[at+slotSize:], slot)
		copy(b[at+slots*slotSize:], table)
		if mend { // a header that fits, so that what is behind it counts
			copy(b, magic)
			put32(offVersion, layoutVersion)(b)
			put32(offPolicy, 1+binary.LittleEndian.Uint32(b[offPolicy:])%2)(b)
			put32(offSlots, slots)(b)
			put32(offObjects, uint32(objects))(b)
		} else {
			b = b[:len(b)-min(len(b), int(cut))]
		}
		c, err := privateOf(b, false)
		if err != nil {
			require.ErrorIs(t, err, shmring.ErrCorrupt)
			return
		}
		valid := 0
		for i, r := range c.Records() {
			valid++
			use, _ := c.Use(i)
			c.SetUse(i, use+1)
			now, ok := c.Use(i)
			require.True(t, ok)
			require.Equal(t, (use+1)&^useCheck, now)
			require.LessOrEqual(t, r.Size, math.MaxUint32)
		}
		require.Equal(t, c.opt.Objects, valid+c.Free())
		require.LessOrEqual(t, 4*cap(c.free), len(b))
		held, dead := c.Held()
		require.Zero(t, dead)
		require.LessOrEqual(t, len(held), c.opt.Slots*maxHolds)
		if s, err := c.TakeSlot(1); err == nil {
			_, ok := s.Hold(77)
			require.True(t, ok)
			held, _ = c.Held()
			require.Contains(t, held, uint32(77))
			require.NoError(t, s.Close())
		} else {
			require.ErrorIs(t, err, ErrBusy)
			require.Equal(t, c.opt.Slots, takenSlots(c))
		}
		if c.Free() > 0 {
			i := c.Put(record(4), 9)
			again, err := privateOf(c.mem, false)
			require.NoError(t, err)
			for j, r := range again.Records() {
				if i == j {
					require.Equal(t, record(4), r)
				}
			}
			c.Drop(i)
		}
		state := State{Epoch: c.State().Epoch + 1, NextID: 5}
		c.SetState(state)
		again, err := privateOf(c.mem, true)
		require.NoError(t, err)
		got := again.State()
		got.Damaged = false // the other record is as the fuzzer made it
		require.Equal(t, state, got)
	})
}
