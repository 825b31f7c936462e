package payload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// Description is what whoever adopts a segment has to know of an object besides its payload. It stands
// beside the payload, where readers don't look. Little-endian:
//
//	bytes  field
//	8      cost of making the object again, float64, nanoseconds
//	4 + n  key
//	4 + n  tenant
//	4 + n  note
type Description struct {
	Cost        float64
	Key, Tenant string
	Note        []byte
}

// MinSize is the bytes of a description without texts.
const MinSize = 8 + 3*4

// Size returns the bytes of the description.
func (d Description) Size() int { return MinSize + len(d.Key) + len(d.Tenant) + len(d.Note) }

// Write writes the description to b, which is as long as Size.
func (d Description) Write(b []byte) {
	WriteCost(b, d.Cost)
	b = b[:8]
	for _, s := range [...]string{d.Key, d.Tenant} {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	_ = append(binary.LittleEndian.AppendUint32(b, uint32(len(d.Note))), d.Note...)
}

// WriteCost replaces the cost in a description.
func WriteCost(b []byte, cost float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(cost)) }

// ErrDescription reports bytes that are no description.
var ErrDescription = errors.New("the description of the object makes no sense")

// Parse returns what Write wrote. It believes nothing. The note is a copy.
func Parse(b []byte) (d Description, err error) {
	if len(b) < 8 {
		return d, ErrDescription
	}
	d.Cost = math.Float64frombits(binary.LittleEndian.Uint64(b))
	b = b[8:]
	var parts [3][]byte
	for i := range parts {
		if len(b) < 4 {
			return d, ErrDescription
		}
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(n) > uint64(len(b)) {
			return d, ErrDescription
		}
		parts[i], b = b[:n], b[n:]
	}
	if len(b) != 0 || !(d.Cost >= 0) || math.IsInf(d.Cost, 0) {
		return d, ErrDescription
	}
	d.Key, d.Tenant, d.Note = string(parts[0]), string(parts[1]), bytes.Clone(parts[2])
	return d, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum returns the checksum (CRC-32C) of the bytes of a description, by which a reservation that outlives
// its process is recognised.
func Sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
