package shmstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
)

// The description of an object is what whoever adopts the segment has to know of it.
// It stands beside the payload, where readers don't look. Little-endian:
//
//	bytes  field
//	8      cost of making the object again, float64, nanoseconds
//	4 + n  key
//	4 + n  tenant
//	4 + n  note
const descriptionFixed = 8 + 3*4

func (o *Object) descriptionSize() int {
	return descriptionFixed + len(o.key) + len(o.tenant()) + len(o.Note())
}

// describe writes the description of an object to b, which is as long as that.
func (o *Object) describe(b []byte) {
	o.describeCost(b)
	b = b[:8]
	for _, s := range []string{o.key, o.tenant()} {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	_ = append(binary.LittleEndian.AppendUint32(b, uint32(len(o.Note()))), o.Note()...)
}

func (o *Object) describeCost(b []byte) {
	binary.LittleEndian.PutUint64(b, math.Float64bits(o.cost))
}

var errDescription = errors.New("the description of the object makes no sense")

// parseDescription fills in what describe wrote. It believes nothing.
func (o *Object) parseDescription(b []byte) error {
	if len(b) < 8 {
		return errDescription
	}
	o.cost = math.Float64frombits(binary.LittleEndian.Uint64(b))
	b = b[8:]
	var parts [3][]byte
	for i := range parts {
		if len(b) < 4 {
			return errDescription
		}
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(n) > uint64(len(b)) {
			return errDescription
		}
		parts[i], b = b[:n], b[n:]
	}
	if len(b) != 0 || !utf8.Valid(parts[0]) || !(o.cost >= 0) || math.IsInf(o.cost, 0) {
		return errDescription
	}
	o.key = string(parts[0])
	o.describeMore(string(parts[1]), bytes.Clone(parts[2]))
	return nil
}
