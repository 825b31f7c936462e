package memory

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// An object is in the store under a text of its key, with a note of what tier.Object has beside the key and the
// size. docs/format.md describes both.

// rawPrefix is in front of the text of a key that is not UTF-8, each byte of which is a character then. No other text
// begins so, since a name is not empty and has no zero byte.
const rawPrefix = "\x00\x00"

func keyText(k tier.Key) string { return text(k.Space, k.Name) }

func text(space, name string) string {
	s := space + "\x00" + name
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.WriteString(rawPrefix)
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// parseKey is the reverse of keyText. It accepts nothing else.
func parseKey(s string) (k tier.Key, ok bool) {
	raw, isRaw := strings.CutPrefix(s, rawPrefix)
	if isRaw {
		b := make([]byte, 0, len(raw))
		for _, r := range raw {
			if r > 0xff {
				return k, false
			}
			b = append(b, byte(r))
		}
		s = string(b)
	}
	if isRaw == utf8.ValidString(s) {
		return k, false
	}
	k.Space, k.Name, ok = strings.Cut(s, "\x00")
	return k, ok && k.Validate() == nil
}

const (
	noteVersion = 1
	noteParent  = 17 // where the length of the parent's name is
)

// appendNote appends the note of an object:
//
//	bytes  field
//	1      version
//	8      size
//	8      cost, nanoseconds
//	2 + n  name of the parent
//	1 + n  tenant
//	n      note of the owner
func appendNote(b []byte, o *tier.Object) []byte {
	b = append(b, noteVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Size))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Cost))
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(o.Parent))), o.Parent...)
	b = append(append(b, byte(len(o.Tenant))), o.Tenant...)
	return append(b, o.Note...)
}

// parseNote fills in what appendNote wrote. It believes nothing.
func parseNote(b []byte, o *tier.Object) bool {
	if len(b) < noteParent+2 || b[0] != noteVersion {
		return false
	}
	o.Size = int64(binary.LittleEndian.Uint64(b[1:]))
	o.Cost = time.Duration(binary.LittleEndian.Uint64(b[9:]))
	n := int(binary.LittleEndian.Uint16(b[noteParent:]))
	if b = b[noteParent+2:]; len(b) < n+1 {
		return false
	}
	o.Parent, b = string(b[:n]), b[n:]
	n = int(b[0])
	if b = b[1:]; len(b) < n {
		return false
	}
	o.Tenant, b = string(b[:n]), b[n:]
	if o.Note = nil; len(b) > 0 {
		o.Note = b[:len(b):len(b)]
	}
	return true
}

// parentKey returns the text of the parent's key, see shmstore.Options.Parent.
func parentKey(key string, note []byte) string {
	const begin = noteParent + 2
	if len(note) < begin || note[0] != noteVersion {
		return ""
	}
	n := int(binary.LittleEndian.Uint16(note[noteParent:]))
	if n == 0 || len(note) < begin+n {
		return ""
	}
	k, ok := parseKey(key)
	if !ok {
		return ""
	}
	return text(k.Space, string(note[begin:begin+n]))
}

// describe returns what the level was told of an object. ok is false for one that no level put.
func describe(o *shmstore.Object) (t tier.Object, ok bool) {
	k, ok := parseKey(o.Key())
	if !ok {
		return t, false
	}
	return describeAs(k, o)
}

// describeAs is describe for an object whose key is k.
func describeAs(k tier.Key, o *shmstore.Object) (t tier.Object, ok bool) {
	t.Key = k
	return t, parseNote(o.Note(), &t) && t.Validate() == nil && uint64(t.Size) <= o.Handle().Length
}
