package memory

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// An object is in the store under a text of its key, with a note of what tier.Object has beside the key and the
// size. docs/format.md describes both.

func keyText(k tier.Key) string { return text(k.Space, k.Name) }

func text(space, name string) string {
	var buf [192]byte // enough for most
	b := append(append(buf[:0], space...), 0)
	return string(appendName(b, name))
}

// parseKey is the reverse of keyText. It accepts nothing else.
func parseKey(s string) (k tier.Key, ok bool) {
	space, name, ok := strings.Cut(s, "\x00")
	if !ok {
		return k, false
	}
	k.Space = space
	k.Name, ok = parseName(name)
	return k, ok && k.Validate() == nil
}

// Most names are hashes in hexadecimal digits. A name of at least so many is a zero byte and the bytes that the digits
// are of: half as long on the heap, which has names of every object and of its parent.
const minDigits = 16

// appendName appends the short form of a name. No other name begins with a zero byte.
func appendName(b []byte, name string) []byte {
	if len(name) < minDigits || len(name)%2 != 0 {
		return append(b, name...)
	}
	before := len(b)
	b = append(b, 0)
	for i := 0; i < len(name); i += 2 {
		high, low := digits[name[i]], digits[name[i+1]]
		if high|low > 15 {
			return append(b[:before], name...)
		}
		b = append(b, high<<4|low)
	}
	return b
}

// digits are the values of hexadecimal digits in small letters; those of other characters are above 15.
var digits = func() (values [256]byte) {
	for c := range values {
		values[c] = byte(strings.IndexByte("0123456789abcdef", byte(c))) // -1 is 255
	}
	return values
}()

// parseName is the reverse of appendName. It accepts nothing else.
func parseName[T string | []byte](b T) (name string, ok bool) {
	if len(b) == 0 || b[0] != 0 {
		name = string(b)
		var buf [128]byte // enough for most
		return name, len(appendName(buf[:0], name)) == len(name)
	}
	if b = b[1:]; len(b) < minDigits/2 || len(b) > tier.MaxName/2 {
		return "", false
	}
	var buf [128]byte // enough for most
	return string(hex.AppendEncode(buf[:0], []byte(b))), true
}

const noteVersion = 1

// appendNote appends the note of an object:
//
//	bytes  field
//	1      version
//	1-10   size, a varint
//	1-10   cost, nanoseconds, a varint
//	1-2    length of what follows, a varint
//	n      name of the parent, see appendName
//	1 + n  tenant
//	n      note of the owner
func appendNote(b []byte, o *tier.Object) []byte {
	var buf [64]byte // enough for most
	parent := appendName(buf[:0], o.Parent)
	b = append(b, noteVersion)
	b = binary.AppendUvarint(b, uint64(o.Size))
	b = binary.AppendUvarint(b, uint64(o.Cost))
	b = append(binary.AppendUvarint(b, uint64(len(parent))), parent...)
	b = append(append(b, byte(len(o.Tenant))), o.Tenant...)
	return append(b, o.Note...)
}

// uvarint takes a number from the front of b. It accepts only the shortest form.
func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// note is what a note begins with, and the rest of it.
type note struct {
	size, cost   uint64
	parent, rest []byte
}

// cutNote returns the parts of a note. It believes nothing.
func cutNote(b []byte) (n note, ok bool) {
	if len(b) == 0 || b[0] != noteVersion {
		return n, false
	}
	var length uint64
	b = b[1:]
	for _, v := range []*uint64{&n.size, &n.cost, &length} {
		if *v, b, ok = uvarint(b); !ok {
			return n, false
		}
	}
	if length > uint64(len(b)) {
		return n, false
	}
	n.parent, n.rest = b[:length], b[length:]
	return n, true
}

// parseNote fills in what appendNote wrote. It believes nothing.
func parseNote(b []byte, o *tier.Object) bool {
	n, ok := cutNote(b)
	if b = n.rest; !ok || len(b) == 0 || len(b)-1 < int(b[0]) {
		return false
	}
	o.Size, o.Cost = int64(n.size), time.Duration(n.cost)
	if o.Parent, ok = parseName(n.parent); !ok {
		return false
	}
	end := 1 + int(b[0])
	o.Tenant, b = string(b[1:end]), b[end:]
	if o.Note = nil; len(b) > 0 {
		o.Note = b[:len(b):len(b)]
	}
	return true
}

// parentKey returns the text of the parent's key, see shmstore.Options.Parent.
func parentKey(key string, note []byte) string {
	n, ok := cutNote(note)
	space, name, isKey := strings.Cut(key, "\x00")
	if !ok || !isKey || len(n.parent) == 0 || name == "" || name[0] != 0 && strings.IndexByte(name, 0) >= 0 {
		return ""
	}
	return key[:len(space)+1] + string(n.parent)
}

// describe returns what the level was told of an object. ok is false for one that no level put.
func describe(o *shmstore.Object) (t tier.Object, ok bool) {
	k, ok := parseKey(o.Key())
	if !ok {
		return t, false
	}
	return describeAs(k, o)
}

// Describe returns the object of a level by what shmstore has of it: the format of the store, the key and the note. ok
// is false for one that no level put. Package inspect reads segments with it.
func Describe(storeFormat, key string, note []byte) (t tier.Object, ok bool) {
	if storeFormat != format {
		return t, false
	}
	if t.Key, ok = parseKey(key); !ok {
		return t, false
	}
	return t, parseNote(note, &t) && t.Validate() == nil
}

// describeAs is describe for an object whose key is k.
func describeAs(k tier.Key, o *shmstore.Object) (t tier.Object, ok bool) {
	t.Key = k
	return t, parseNote(o.Note(), &t) && t.Validate() == nil && uint64(t.Size) <= o.Handle().Length
}
