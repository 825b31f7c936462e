package redis

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/ringcache/ringcache/tier"
)

// RESP is the layout of LMCache's native RESP client and of its RESP adapter (lmcache 0.5.6): the bytes of an
// object under its name, which is LMCache's key text, and nothing else.
//
// Parent, tenant, cost and note of an object are not kept, and its bytes have no checksum. Every value of a
// server could be an object, so none is damaged: a value that is not a string, or has another size than Size,
// is a miss and stays, unless an object of that name is put, as LMCache itself would write over it, or
// deleted. Without Size, List returns the strings of other programs, too.
type RESP struct {
	// Space is the space of all objects of the level. Put refuses objects of others, and no others are found.
	Space string
	// Size, if not 0, is that of every object, in bytes. LMCache's client hangs when a value has another one,
	// so such values are no objects, and Put refuses such objects.
	Size int64
	// Pairs makes objects of the two keys of LMCache's Redis connector, too, each of its own, as a server for clients of
	// Redis keeps them; what it calls metadata is a child of the bytes. Else these keys are those of the layout LMCache,
	// and no objects.
	Pairs bool
}

func (r RESP) check() error {
	if r.Size < 0 {
		return invalid("a size of %d", r.Size)
	}
	return checkSpace(r.Space)
}

func (r RESP) keys(k tier.Key) (keys, error) {
	if err := oneSpace(k, r.Space); err != nil {
		return keys{}, err
	}
	return keys{k.Name, k.Name}, nil
}

func (r RESP) name(head string) (tier.Key, bool) {
	// Both layouts of LMCache may share a server.
	k := tier.Key{Space: r.Space, Name: head}
	half := strings.HasSuffix(head, suffixBytes) || strings.HasSuffix(head, suffixMetadata)
	return k, k.Validate() == nil && (r.Pairs || !half)
}

func (r RESP) match(space string) (begin, end string, ok bool) {
	return "", "", space == "" || space == r.Space
}

func (RESP) shared() bool { return true }

func (RESP) probe(get bool) int {
	if get {
		return probeGet
	}
	return 1
}

func (r RESP) accept(o tier.Object) error {
	switch {
	case o.Size == 0:
		return fmt.Errorf("tier/redis: object %v is empty, and the layout keeps no empty objects: %w", o.Key,
			fs.ErrInvalid)
	case r.Size != 0 && o.Size != r.Size:
		return fmt.Errorf("tier/redis: object %v has %d bytes, and the layout is for objects of %d: %w", o.Key,
			o.Size, r.Size, fs.ErrInvalid)
	}
	return fits(o, 0)
}

func (RESP) room(tier.Object) int { return 0 }

func (RESP) front(tier.Object, uint32) (front, head []byte) { return nil, nil }

func (r RESP) parse(k tier.Key, _ []byte, body int64) (entry, error) {
	switch {
	case body == 0:
		return entry{}, errMissing
	case r.Size != 0 && body != r.Size:
		return entry{}, foreign("the value has %d bytes, and all objects %d", body, r.Size)
	}
	o := tier.Object{Key: k, Size: body}
	if stem, ok := strings.CutSuffix(k.Name, suffixMetadata); ok && r.Pairs {
		o.Parent = stem + suffixBytes
	}
	return entry{object: o}, nil
}
