package redis

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/ringcache/ringcache/tier"
)

// A Layout decides under which keys objects are, and what the values contain: [Objects], [LMCache] or [RESP].
type Layout interface {
	check() error
	// keys returns the keys of an object, behind the prefix. It fails with fs.ErrInvalid for
	// an object that the layout has no key for.
	keys(k tier.Key) (keys, error)
	// name is the reverse of keys, of the head's key. It returns false for keys of others.
	name(head string) (tier.Key, bool)
	// match returns the beginning and the end of the keys of the heads of a space, or of all spaces, and
	// false if the layout has none of that space.
	match(space string) (begin, end string, ok bool)
	// probe is how many bytes of a head are read at first, to describe an object or to get it.
	probe(get bool) int
	// shared reports whether values of others can't be told from objects by a mark of their own, so that a
	// value of another type is foreign and no damage.
	shared() bool
	// parse describes an object by the beginning of its head, and by the length of its body. It returns
	// errMissing, errDamaged, errForeign, or an errLongerHead.
	parse(k tier.Key, head []byte, body int64) (entry, error)
	// accept refuses objects that the layout can't keep, with fs.ErrInvalid or tier.ErrTooLarge.
	accept(o tier.Object) error
	// front returns what is in front of the object's bytes in the body, given their checksum, and
	// the value of the head if that has a key of its own.
	front(o tier.Object, sum uint32) (front, head []byte)
	// room is the length of what front returns first.
	room(o tier.Object) int
}

// keys are those of one object. The head decides whether the object is there. The body has the bytes; in most
// layouts both are the same key.
type keys struct{ head, body string }

// entry describes an object that is there.
type entry struct {
	object tier.Object
	offset int64 // of the bytes in the body
	sum    uint32
	hasSum bool
}

var errMissing = errors.New("missing")

// errDamaged is a value that can't be what was put.
type errDamaged struct{ reason string }

func (e errDamaged) Error() string { return e.reason }

func damaged(format string, args ...any) error { return errDamaged{fmt.Sprintf(format, args...)} }

// errForeign is a value that the layout does not write: perhaps that of another program. It is a miss, and
// stays.
type errForeign struct{ reason string }

func (e errForeign) Error() string { return e.reason }

func foreign(format string, args ...any) error { return errForeign{fmt.Sprintf(format, args...)} }

// notOurs returns what a value is that can't be an object: another program's where values of others can't be
// told from objects, and damage where they can.
func notOurs(l Layout, reason string) error {
	if l.shared() {
		return errForeign{reason}
	}
	return errDamaged{reason}
}

// errLongerHead asks for so many bytes of the head.
type errLongerHead int

func (e errLongerHead) Error() string { return fmt.Sprintf("the head has %d bytes", int(e)) }

// largest is the most bytes of a value of a server with its usual settings.
const largest = 512 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fits refuses what no value has room for.
func fits(o tier.Object, front int) error {
	if o.Size > largest-int64(front) {
		return fmt.Errorf("tier/redis: object %v has %d bytes, and a value at most %d: %w", o.Key, o.Size,
			largest-front, tier.ErrTooLarge)
	}
	return nil
}
