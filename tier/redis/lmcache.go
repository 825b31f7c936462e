package redis

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ringcache/ringcache/internal/remotemetadata"
	"github.com/ringcache/ringcache/tier"
)

// LMCache is the layout of LMCache's Redis connector (lmcache 0.5.6): the bytes of an object under its name
// and kv_bytes, and its RemoteMetadata under its name and metadata. The name is LMCache's key text. The note
// of an object is its RemoteMetadata, 28 bytes for one group of tensors and 20 more for each further one,
// whose first number is the size.
//
// Parent, tenant and cost of an object are not kept, and its bytes have no checksum: what the server returns
// is right if its length is. Bytes are written before metadata. Metadata whose bytes are missing, or have
// another length, are a miss, and are removed by Stat, Get and Put. Bytes without metadata are ignored:
// another writer may be about to write the metadata.
//
// Keys of other programs may end as LMCache's do. A value that is not a RemoteMetadata in all of its numbers,
// or not a string, is a miss and stays, unless an object of that name is put, as LMCache itself would write
// over it, or deleted.
type LMCache struct {
	// Space is the space of all objects of the level. Put refuses objects of others, and no others are found.
	Space string
}

const (
	suffixBytes    = "kv_bytes"
	suffixMetadata = "metadata"
)

func (l LMCache) check() error { return checkSpace(l.Space) }

// checkSpace checks the space of a layout whose keys don't contain it.
func checkSpace(space string) error {
	return tier.Key{Space: space, Name: "any"}.Validate()
}

func (l LMCache) keys(k tier.Key) (keys, error) {
	if err := oneSpace(k, l.Space); err != nil {
		return keys{}, err
	}
	return keys{head: k.Name + suffixMetadata, body: k.Name + suffixBytes}, nil
}

func oneSpace(k tier.Key, space string) error {
	if err := k.Validate(); err != nil {
		return err
	}
	if k.Space != space {
		return fmt.Errorf("tier/redis: object %v: this level has only the space %q, its layout keeps none: %w", k,
			space, fs.ErrInvalid)
	}
	return nil
}

func (l LMCache) name(head string) (tier.Key, bool) {
	text, ok := strings.CutSuffix(head, suffixMetadata)
	k := tier.Key{Space: l.Space, Name: text}
	return k, ok && k.Validate() == nil
}

func (l LMCache) match(space string) (begin, end string, ok bool) {
	return "", suffixMetadata, space == "" || space == l.Space
}

func (LMCache) shared() bool { return true }

// probe has one byte more than metadata can have, which shows that they are too long.
func (LMCache) probe(bool) int { return remotemetadata.Max + 1 }

func (l LMCache) accept(o tier.Object) error {
	if err := remotemetadata.CheckStrictly(o.Note); err != nil {
		return fmt.Errorf("tier/redis: the note of object %v is not LMCache's RemoteMetadata: %w: %w", o.Key, err,
			fs.ErrInvalid)
	}
	if n := remotemetadata.Length(o.Note); n != o.Size || n == 0 {
		return fmt.Errorf("tier/redis: object %v has %d bytes, its RemoteMetadata %d, and the layout keeps no empty objects: %w", o.Key, o.Size, n, fs.ErrInvalid)
	}
	return fits(o, 0)
}

func (LMCache) room(tier.Object) int { return 0 }

func (LMCache) front(o tier.Object, _ uint32) (front, head []byte) { return nil, o.Note }

func (LMCache) parse(k tier.Key, head []byte, body int64) (entry, error) {
	if len(head) == 0 {
		return entry{}, errMissing
	}
	if err := remotemetadata.CheckStrictly(head); err != nil {
		return entry{}, foreign("metadata: %v", err)
	}
	size := remotemetadata.Length(head)
	if size == 0 {
		return entry{}, foreign("the metadata are of 0 bytes, which LMCache does not keep")
	}
	if body == 0 || size != body {
		return entry{}, damaged("the metadata are of %d bytes, and %d are there", size, body)
	}
	return entry{object: tier.Object{Key: k, Size: size, Note: bytes.Clone(head)}}, nil
}
