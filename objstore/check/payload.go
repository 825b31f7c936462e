package check

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// countSize is the bytes of the reader count in front of the metadata
// (shm_object_storage.py, 0.11.0 to 0.33.0).
const countSize = 4

// checkPayload returns what is wrong with vLLM's payload of a chunk: its count, metadata and
// frames. entry is that of the table, nil if there is none.
func (c *checker) checkPayload(whose string, chunk shmring.Chunk, entry *sidecar.Record) (found []Finding) {
	at := int64(len(c.seg.Secret())) + int64(chunk.Address%uint64(len(c.seg.Ring())))
	add := func(offset int, what, want, got string) {
		found = append(found, Finding{c.name, at + int64(offset), whose + ": " + what, want, got})
	}
	const payload = shmring.HeaderSize
	if len(chunk.Payload) < countSize {
		add(4, "bytes of the payload", fmt.Sprintf("at least %d", countSize), fmt.Sprint(len(chunk.Payload)))
		return found
	}
	if n := int32(mem.LoadStable32(chunk.Payload)); n < 0 {
		add(payload, "count of reads", "0 or more", fmt.Sprint(n))
	}
	b := chunk.Payload[countSize:]
	m, data, err := serde.ParsePayload(b)
	if err == nil {
		_, err = serde.DecodeValue(m, data, serde.Options{Generation: c.wire})
	}
	if err != nil {
		return append(found, c.wrong(whose, at+payload+countSize, err))
	}
	if entry == nil {
		return found
	}
	_, n, err := serde.ParseMetadata(b)
	switch end := entry.DescriptionOffset + entry.DescriptionLength; {
	case err != nil:
		found = append(found, c.wrong(whose, at+payload+countSize, err))
	case countSize+n != entry.DescriptionOffset:
		add(payload+entry.DescriptionOffset, "begin of the description",
			fmt.Sprintf("%d, behind the metadata", countSize+n), fmt.Sprint(entry.DescriptionOffset))
	case int64(end) > int64(len(chunk.Payload))-m.NBytes:
		add(payload+end, "end of the description",
			fmt.Sprintf("at most %d, where the data begin", int64(len(chunk.Payload))-m.NBytes), fmt.Sprint(end))
	}
	return found
}

// wrong makes a finding of an error about bytes that begin at an offset in the segment.
func (c *checker) wrong(whose string, at int64, err error) Finding {
	var header *shmring.CorruptError
	var value *codec.CorruptError
	switch {
	case errors.As(err, &header):
		return Finding{
			c.name, at + int64(header.Offset), whose + ": " + header.What, header.Want, fmt.Sprint(header.Got),
		}
	case errors.As(err, &value):
		return Finding{c.name, at + int64(max(value.Offset, 0)), whose + ": " + value.What, value.Want, value.Got}
	}
	return Finding{c.name, at, whose, "an object", err.Error()}
}

// checkHandles checks the chunks that the caller has named.
func (c *checker) checkHandles() error {
	for _, h := range c.opt.Handles {
		bad := c.persists(func() ([]Finding, error) { return c.checkHandle(h), nil })
		if chunk, err := shmring.ReadChunk(c.seg.Ring(), h.Address); err == nil && !bad {
			c.report.Chunks++
			c.report.Bytes += int64(chunk.Size)
		}
	}
	return nil
}

func (c *checker) checkHandle(h serde.Address) []Finding {
	ring, offset := c.seg.Ring(), int64(len(c.seg.Secret()))
	whose := fmt.Sprintf("handle %d:%d", h.Address, h.ID)
	at := offset + int64(h.Address%uint64(len(ring)))
	if h.ID >= shmring.IDLimit {
		return []Finding{{c.name, at, whose + ": id", "below 2^31", fmt.Sprint(h.ID)}}
	}
	chunk, err := shmring.ReadChunk(ring, h.Address)
	if chunk.ID != h.ID {
		return []Finding{{c.name, at, whose + ": id of the chunk", fmt.Sprint(h.ID), fmt.Sprint(chunk.ID)}}
	}
	if err != nil {
		return []Finding{c.wrong(whose, offset, err)}
	}
	if c.wire == nil {
		return nil
	}
	found := c.checkPayload(whose, chunk, nil)
	mem.Fence()
	if again, _ := shmring.ReadChunk(ring, h.Address); again.ID != h.ID { // it was freed meanwhile
		return []Finding{{c.name, at, whose + ": id of the chunk", fmt.Sprint(h.ID), fmt.Sprint(again.ID)}}
	}
	return slices.Clip(found)
}
