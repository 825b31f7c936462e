package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/ringcache/ringcache/internal/remotemetadata"
	"github.com/ringcache/ringcache/tier"
)

// LMCache is the layout of LMCache's FS connector with save_chunk_meta
// (lmcache/v1/storage_backend/connector/fs_connector.py of
// 0.5.6): ROOT/KEY.data, where KEY is LMCache's key text with "-SEP-" for every slash. A file is the
// RemoteMetadata of the bytes, 28 bytes for one group of tensors, and then the bytes. The name of a key is
// LMCache's key text, and the note of an object its RemoteMetadata.
//
// Parent, tenant and cost are not kept, and files have no checksum: what is read is right if its length is. A
// folder that LMCache uses, too, needs Options.Shared.
type LMCache struct{}

const (
	lmcacheSuffix = ".data"
	lmcacheSlash  = "-SEP-"
	maxFileName   = 255
)

// Name implements Layout.
func (LMCache) Name() string { return "lmcache" }

// Path implements Layout. It refuses a name that can't be read back from the name of the file, since that
// file belongs to another key: a name with "-SEP-", or "x-SEP/y", which has the file of "x/SEP-y".
func (LMCache) Path(k tier.Key) (string, error) {
	name := strings.ReplaceAll(k.Name, "/", lmcacheSlash) + lmcacheSuffix
	if lmcacheName(name) != k.Name || k.Name == "" || len(name) > maxFileName || name[0] == '.' {
		return "", fmt.Errorf("disk: %v can't be a file of LMCache: it begins with a dot, has the file of another key "+
			"for %q, or needs more than %d bytes: %w", k, lmcacheSlash, maxFileName, fs.ErrInvalid)
	}
	return name, nil
}

// lmcacheName returns the key text of a file.
func lmcacheName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(file, lmcacheSuffix), lmcacheSlash, "/")
}

// AppendHead implements Layout.
func (LMCache) AppendHead(dst []byte, o tier.Object, _ uint32) ([]byte, error) {
	if err := remotemetadata.CheckStrictly(o.Note); err != nil {
		return nil, fmt.Errorf("disk: the note of object %v is not LMCache's RemoteMetadata: %w: %w", o.Key, err,
			fs.ErrInvalid)
	}
	if n := remotemetadata.Length(o.Note); n != o.Size {
		return nil, fmt.Errorf("disk: object %v has %d bytes, and its RemoteMetadata %d: %w", o.Key, o.Size, n,
			fs.ErrInvalid)
	}
	return append(dst, o.Note...), nil
}

// ParseHead implements Layout. A file that does not begin with a RemoteMetadata is foreign, since a connector
// without save_chunk_meta writes the bytes alone under the same name. The number of groups follows from the
// size of the file, so a file with bytes behind the object's, which LMCache reads, is foreign, too. Only a
// file that is too short is damaged.
func (LMCache) ParseHead(name string, file io.ReaderAt, size int64) (Head, error) {
	if !strings.HasSuffix(name, lmcacheSuffix) || path.Base(name) != name || name[0] == '.' {
		return Head{}, fmt.Errorf("disk: %s is not a file of LMCache: %w", name, ErrPath)
	}
	o := tier.Object{Key: tier.Key{Name: lmcacheName(name)}}
	torn := func(what string) (Head, error) {
		return Head{}, fmt.Errorf("disk: %s: %s: %w", name, what, tier.ErrCorrupt)
	}
	foreign := func(what string) (Head, error) {
		return Head{}, fmt.Errorf("disk: %s %s: %w", name, what, fs.ErrInvalid)
	}
	if size < remotemetadata.Min {
		return foreign("is shorter than metadata")
	}
	front := make([]byte, min(size, remotemetadata.Max))
	if n, err := file.ReadAt(front, 0); n < len(front) {
		if err == nil || errors.Is(err, io.EOF) {
			return torn("it was truncated while it was read")
		}
		return Head{}, err
	}
	if err := remotemetadata.CheckStrictly(front[:remotemetadata.Min]); err != nil {
		return foreign(fmt.Sprintf("does not begin with metadata: %v", err))
	}
	o.Size = remotemetadata.Length(front)
	head := size - o.Size
	if head < remotemetadata.Min {
		return torn(fmt.Sprintf("%d bytes are too few for metadata and %d bytes", size, o.Size))
	}
	if head > int64(len(front)) || remotemetadata.CheckStrictly(front[:head]) != nil {
		return foreign(fmt.Sprintf("has something else in front of, or behind, %d bytes", o.Size))
	}
	o.Note = bytes.Clone(front[:head])
	return Head{Object: o, Length: head}, nil
}
