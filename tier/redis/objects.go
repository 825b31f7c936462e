package redis

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/url"
	"strings"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// Objects is the layout with one key for each object, whose value is a head and then the bytes, so
// that the server can't evict the half of an object. The head has the whole description and a checksum over
// every byte. docs/format.md describes it.
// See docs/decisions.md, "An object in Redis is one value, and damage is removed by comparison".
type Objects struct{}

// The head of a value. All numbers are little-endian.
const (
	headMagic   = "RCob"
	headVersion = 1

	// offsets
	headAtVersion = 4  // u8
	headAtZero    = 5  // u8, 0
	headAtParent  = 6  // u16, bytes of the parent's name
	headAtTenant  = 8  // u16
	headAtNote    = 10 // u16
	headAtSize    = 12 // u64, bytes of the object
	headAtCost    = 20 // u64, nanoseconds
	headAtBody    = 28 // u32, CRC-32C of the object's bytes
	headAtSum     = 32 // u32, CRC-32C of 0 to 32, the texts and the key behind the prefix
	headFixed     = 36 // then parent, tenant, note
)

func (Objects) check() error { return nil }

// A space is escaped, so that the first colon ends it.
var escapeSpace = strings.NewReplacer("%", "%25", ":", "%3A")

func (Objects) keys(k tier.Key) (keys, error) {
	if err := k.Validate(); err != nil {
		return keys{}, err
	}
	text := objectKey(k)
	return keys{text, text}, nil
}

func objectKey(k tier.Key) string { return escapeSpace.Replace(k.Space) + ":" + k.Name }

func (Objects) name(head string) (tier.Key, bool) {
	space, name, ok := strings.Cut(head, ":")
	if !ok {
		return tier.Key{}, false
	}
	space, err := url.PathUnescape(space)
	k := tier.Key{Space: space, Name: name}
	// One object has one key: other texts that would be read the same way are not ours.
	return k, err == nil && k.Validate() == nil && objectKey(k) == head
}

func (Objects) match(space string) (begin, end string, ok bool) {
	if space == "" {
		return "", "", true
	}
	return escapeSpace.Replace(space) + ":", "", true
}

func (Objects) shared() bool { return false }

// probe reads small objects in the same round trip as their heads.
func (Objects) probe(get bool) int {
	if get {
		return probeGet
	}
	return 512
}

func (Objects) accept(o tier.Object) error { return fits(o, headLength(o)) }

func headLength(o tier.Object) int { return headFixed + len(o.Parent) + len(o.Tenant) + len(o.Note) }

func (Objects) room(o tier.Object) int { return headLength(o) }

func (Objects) front(o tier.Object, sum uint32) (front, head []byte) {
	h := make([]byte, headFixed, headLength(o))
	copy(h, headMagic)
	h[headAtVersion] = headVersion
	le := binary.LittleEndian
	le.PutUint16(h[headAtParent:], uint16(len(o.Parent)))
	le.PutUint16(h[headAtTenant:], uint16(len(o.Tenant)))
	le.PutUint16(h[headAtNote:], uint16(len(o.Note)))
	le.PutUint64(h[headAtSize:], uint64(o.Size))
	le.PutUint64(h[headAtCost:], uint64(o.Cost))
	le.PutUint32(h[headAtBody:], sum)
	h = append(h, o.Parent...)
	h = append(h, o.Tenant...)
	h = append(h, o.Note...)
	le.PutUint32(h[headAtSum:], headSum(h, o.Key))
	return h, nil
}

// headSum contains the key, so that a value under another key is no object.
func headSum(h []byte, k tier.Key) uint32 {
	sum := crc32.Update(0, castagnoli, h[:headAtSum])
	sum = crc32.Update(sum, castagnoli, h[headFixed:])
	return crc32.Update(sum, castagnoli, []byte(objectKey(k)))
}

func (Objects) parse(k tier.Key, head []byte, body int64) (entry, error) {
	switch {
	case len(head) == 0 && body == 0:
		return entry{}, errMissing
	case len(head) < headFixed:
		return entry{}, damaged("the value has %d bytes, less than a head", len(head))
	case string(head[:len(headMagic)]) != headMagic:
		return entry{}, damaged("the value does not begin as an object does")
	case head[headAtVersion] != headVersion || head[headAtZero] != 0:
		return entry{}, damaged("the head has the version %d, this library reads %d", head[headAtVersion], headVersion)
	}
	le := binary.LittleEndian
	parent, tenant, note := int(le.Uint16(head[headAtParent:])), int(le.Uint16(head[headAtTenant:])),
		int(le.Uint16(head[headAtNote:]))
	length := headFixed + parent + tenant + note
	switch {
	case parent > tier.MaxName || tenant > tier.MaxTenant || note > tier.MaxNote:
		return entry{}, damaged("the head has texts of %d, %d and %d bytes", parent, tenant, note)
	case int64(length) > body:
		return entry{}, damaged("the value has %d bytes, its head %d", body, length)
	case length > len(head):
		return entry{}, errLongerHead(length)
	}
	head = head[:length]
	size, cost := le.Uint64(head[headAtSize:]), le.Uint64(head[headAtCost:])
	if le.Uint32(head[headAtSum:]) != headSum(head, k) {
		return entry{}, damaged("the checksum of the head is wrong")
	}
	if size != uint64(body)-uint64(length) {
		return entry{}, damaged("the value has %d bytes behind its head, the object %d", body-int64(length), size)
	}
	texts := head[headFixed:]
	o := tier.Object{
		Key:    k,
		Size:   int64(size),
		Parent: string(texts[:parent]),
		Tenant: string(texts[parent : parent+tenant]),
		Cost:   time.Duration(cost),
	}
	if note > 0 {
		o.Note = bytes.Clone(texts[parent+tenant:])
	}
	if err := o.Validate(); err != nil {
		return entry{}, damaged("%v", err)
	}
	return entry{object: o, offset: int64(length), sum: le.Uint32(head[headAtBody:]), hasSum: true}, nil
}
