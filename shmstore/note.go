package objstore

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
)

// What the writer itself needs to know of an object stands between its metadata
// and its data, where readers don't look, so that whoever adopts the segment finds
// it. Little-endian:
//
//	bytes  field
//	8      cost of making the object again, float64, nanoseconds
//	4 + n  key
//	4 + n  tenant
//	4 + n  note
const noteFixed = 8 + 3*4

func appendNote(b []byte, o *object) []byte {
	b = append(b, make([]byte, 8)...)
	putCost(b[len(b)-8:], o)
	for _, s := range []string{o.key, o.tenant, string(o.note)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return b
}

func putCost(note []byte, o *object) {
	binary.LittleEndian.PutUint64(note, math.Float64bits(o.cost))
}

func (o *object) noteSize() int { return noteFixed + len(o.key) + len(o.tenant) + len(o.note) }

var errNote = errors.New("what the writer noted of the object makes no sense")

// parseNote fills in what appendNote wrote. It believes nothing.
func parseNote(b []byte, o *object) error {
	if len(b) < 8 {
		return errNote
	}
	o.cost = math.Float64frombits(binary.LittleEndian.Uint64(b))
	b = b[8:]
	var parts [3][]byte
	for i := range parts {
		if len(b) < 4 {
			return errNote
		}
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(n) > uint64(len(b)) {
			return errNote
		}
		parts[i], b = b[:n], b[n:]
	}
	if len(b) != 0 || !utf8.Valid(parts[0]) || !(o.cost >= 0) || math.IsInf(o.cost, 0) {
		return errNote
	}
	o.key, o.tenant, o.note = string(parts[0]), string(parts[1]), append([]byte(nil), parts[2]...)
	return nil
}
