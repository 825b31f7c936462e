package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// maxText is the most bytes of an escaped space or name in a key: gateways over file systems take 255 of a
// part, and all of a key has at most 1024.
const maxText = 200

// keyOf returns the key of an object in the bucket: PREFIX, SPACE/NAME. Both texts are escaped, or hashed if
// they are long.
func (s *settings) keyOf(k tier.Key) string {
	return s.prefix + keyText(k.Space) + "/" + keyText(k.Name)
}

// keyText writes a text in characters that are safe in every store: letters, digits, minus, underscore and
// points but for the first; others are !XX. An empty text is "!", a long one "!h" and its SHA-256.
func keyText(text string) string {
	if text == "" {
		return "!"
	}
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "!%02X", c)
		}
	}
	if b.Len() > maxText {
		sum := sha256.Sum256([]byte(text))
		return "!h" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// spacePrefix is what the keys of a space, or of all, begin with.
func (s *settings) spacePrefix(space string) string {
	if space == "" {
		return s.prefix
	}
	return s.prefix + keyText(space) + "/"
}

// The head of an object. All numbers are little-endian.
const (
	headMagic   = "RCs3"
	headVersion = 1

	// offsets
	headAtVersion = 4  // u8
	headAtZero    = 5  // u8, 0
	headAtSpace   = 6  // u16, bytes of the space
	headAtName    = 8  // u16
	headAtParent  = 10 // u16
	headAtTenant  = 12 // u16
	headAtNote    = 14 // u16
	headAtSize    = 16 // u64, bytes of the object
	headAtCost    = 24 // u64, nanoseconds
	headAtBody    = 32 // u32, CRC-32C of the object's bytes
	headAtSum     = 36 // u32, CRC-32C of 0 to 36 and the texts
	headFixed     = 40 // then space, name, parent, tenant, note

	maxHead = headFixed + tier.MaxSpace + 2*tier.MaxName + tier.MaxTenant + tier.MaxNote
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func headLength(o tier.Object) int {
	return headFixed + len(o.Space) + len(o.Name) + len(o.Parent) + len(o.Tenant) + len(o.Note)
}

// makeHead returns the head of a valid object, whose bytes have the checksum sum.
func makeHead(o tier.Object, sum uint32) []byte {
	h := make([]byte, headFixed, headLength(o))
	copy(h, headMagic)
	h[headAtVersion] = headVersion
	le := binary.LittleEndian
	le.PutUint16(h[headAtSpace:], uint16(len(o.Space)))
	le.PutUint16(h[headAtName:], uint16(len(o.Name)))
	le.PutUint16(h[headAtParent:], uint16(len(o.Parent)))
	le.PutUint16(h[headAtTenant:], uint16(len(o.Tenant)))
	le.PutUint16(h[headAtNote:], uint16(len(o.Note)))
	le.PutUint64(h[headAtSize:], uint64(o.Size))
	le.PutUint64(h[headAtCost:], uint64(o.Cost))
	le.PutUint32(h[headAtBody:], sum)
	h = append(h, o.Space...)
	h = append(h, o.Name...)
	h = append(h, o.Parent...)
	h = append(h, o.Tenant...)
	h = append(h, o.Note...)
	le.PutUint32(h[headAtSum:], headSum(h))
	return h
}

func headSum(h []byte) uint32 {
	return crc32.Update(crc32.Checksum(h[:headAtSum], castagnoli), castagnoli, h[headFixed:])
}

// entry describes an object that is there.
type entry struct {
	object tier.Object
	offset int64  // of the bytes: the length of the head
	sum    uint32 // of the bytes
}

var errMissing = errors.New("missing")

// errDamaged is what begins as an object and can't be what was put.
type errDamaged struct{ reason string }

func (e errDamaged) Error() string { return e.reason }

func damaged(format string, args ...any) error { return errDamaged{fmt.Sprintf(format, args...)} }

// errForeign is an object of another program, in an object's place.
type errForeign struct{ reason string }

func (e errForeign) Error() string { return e.reason }

// headSize returns how many bytes the head has, by its first headFixed bytes, or by all of a shorter object of
// total bytes.
func headSize(b []byte, total int64) (int, error) {
	switch {
	case total == 0:
		return 0, damaged("it is empty")
	case len(b) < headFixed, string(b[:len(headMagic)]) != headMagic:
		if n := min(len(b), len(headMagic)); string(b[:n]) == headMagic[:n] {
			return 0, damaged("it has %d bytes, less than a head", total)
		}
		return 0, errForeign{"it does not begin as an object does"}
	case b[headAtVersion] != headVersion || b[headAtZero] != 0:
		return 0, errForeign{fmt.Sprintf("its head has the version %d, this library reads %d", b[headAtVersion], headVersion)}
	}
	n := headFixed
	for at, most := range map[int]int{headAtSpace: tier.MaxSpace, headAtName: tier.MaxName, headAtParent: tier.MaxName,
		headAtTenant: tier.MaxTenant, headAtNote: tier.MaxNote} {
		length := int(binary.LittleEndian.Uint16(b[at:]))
		if length > most {
			return 0, damaged("a text of its head has %d bytes, the most is %d", length, most)
		}
		n += length
	}
	if int64(n) > total {
		return 0, damaged("it has %d bytes, its head %d", total, n)
	}
	return n, nil
}

// parseHead describes the object of a key by its head, and by the length of all.
func (s *settings) parseHead(key string, h []byte, total int64) (entry, error) {
	le := binary.LittleEndian
	if want, sum := le.Uint32(h[headAtSum:]), headSum(h); sum != want { // the numbers tell two damages apart, see errUnstable
		return entry{}, damaged("its head has the checksum %08x, and says %08x", sum, want)
	}
	size, cost := le.Uint64(h[headAtSize:]), le.Uint64(h[headAtCost:])
	if size != uint64(total)-uint64(len(h)) {
		return entry{}, damaged("it has %d bytes behind its head, the object %d", total-int64(len(h)), size)
	}
	texts := h[headFixed:]
	text := func(at int) string {
		n := int(le.Uint16(h[at:]))
		t := string(texts[:n])
		texts = texts[n:]
		return t
	}
	o := tier.Object{Key: tier.Key{Space: text(headAtSpace), Name: text(headAtName)}, Size: int64(size),
		Parent: text(headAtParent), Tenant: text(headAtTenant), Cost: time.Duration(cost)}
	if len(texts) > 0 {
		o.Note = bytes.Clone(texts)
	}
	if err := o.Validate(); err != nil {
		return entry{}, damaged("%v", err)
	}
	if s.keyOf(o.Key) != key {
		return entry{}, errForeign{fmt.Sprintf("it is a copy of object %v", o.Key)}
	}
	return entry{object: o, offset: int64(len(h)), sum: le.Uint32(h[headAtBody:])}, nil
}
