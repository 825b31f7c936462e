package encoder

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
	"syscall"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

// importBatch is how many keys are looked up at a time.
const importBatch = 256

// Import copies the files of a tree into a space of a level, and returns an iterator over what it did: each
// object, with nil when it was copied, tier.ErrExists when the level had it already (so a
// second Import goes on where the first one ended), tier.ErrCorrupt for a file that is torn, tier.ErrPending
// for one without a checksum that was written while it was read, fs.ErrInvalid for one that is none of a
// tree, or the level's error. Copying goes on after an error, until ctx ends or the loop does. An error
// without an object is one of the folder, and is the last.
//
// The folder may be in use by connectors. Other files and folders in it are passed over.
func (t Tree) Import(ctx context.Context, folder, space string, to tier.Level) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		root, err := os.OpenRoot(folder)
		if err != nil {
			yield(tier.Object{}, fmt.Errorf("encoder: import: %w", err))
			return
		}
		defer root.Close()
		dir, err := root.Open(".")
		if err != nil {
			yield(tier.Object{}, fmt.Errorf("encoder: import: %w", err))
			return
		}
		defer dir.Close()
		for {
			entries, err := dir.ReadDir(importBatch)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(tier.Object{}, fmt.Errorf("encoder: import: %w", err))
				return
			}
			if !t.importKeys(ctx, root, keysOf(entries, space), to, yield) {
				return
			}
		}
	}
}

// keysOf returns the keys whose folders may be among the entries.
func keysOf(entries []fs.DirEntry, space string) []tier.Key {
	keys := make([]tier.Key, 0, len(entries))
	for _, e := range entries {
		k := tier.Key{Space: space, Name: e.Name()}
		if _, err := (Tree{}).Path(k); err == nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// importKeys copies the files of keys, and reports whether to go on.
func (t Tree) importKeys(ctx context.Context, root *os.Root, keys []tier.Key, to tier.Level,
	yield func(tier.Object, error) bool) bool {
	for i, found := range to.Stat(ctx, keys) {
		if err := ctx.Err(); err != nil {
			yield(tier.Object{Key: keys[i]}, err)
			return false
		}
		var o tier.Object
		var err error
		if found.Err == nil {
			o, err = found.Object, fmt.Errorf("encoder: import of %v: %w", keys[i], tier.ErrExists)
		} else {
			o, err = t.importFile(ctx, root, keys[i], to)
		}
		if isAbsent(err) {
			continue
		}
		if !yield(o, err) {
			return false
		}
	}
	return true
}

// errAbsent is that of a folder without a file: lookups of vLLM up to 0.32 make such folders.
var errAbsent = errors.New("no file")

func isAbsent(err error) bool { return err == errAbsent }

func (t Tree) importFile(ctx context.Context, root *os.Root, k tier.Key, to tier.Level) (tier.Object, error) {
	o := tier.Object{Key: k}
	path, err := t.Path(k)
	if err != nil {
		return o, err
	}
	f, info, err := openRegular(root, path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return o, errAbsent
	}
	if err != nil {
		return o, fmt.Errorf("encoder: import: %w", err)
	}
	defer f.Close()
	head, err := t.ParseHead(path, f, info.Size())
	if err != nil {
		return o, err
	}
	head.Object.Space = k.Space
	put := []tier.Put{{Object: head.Object, From: newVerifier(f, info, head)}}
	to.Put(ctx, put)
	return head.Object, put[0].Err
}

// openRegular opens a file, without waiting for the other end of a pipe.
func openRegular(root *os.Root, path string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file: %w", path, fs.ErrInvalid)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// A verifier reads the bytes behind a head. It returns the last of them only if all have the head's checksum, or if
// it has none, if the file is still as it was when it was opened: so no reader comes to an end of damaged
// bytes, or of those of two files.
type verifier struct {
	bytes io.Reader
	file  *os.File
	info  fs.FileInfo
	left  int64
	sum   uint32
	head  disk.Head
}

func newVerifier(f *os.File, info fs.FileInfo, h disk.Head) io.Reader {
	return &verifier{
		bytes: io.NewSectionReader(f, h.Length, h.Object.Size), file: f, info: info, left: h.Object.Size, head: h,
	}
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.left == 0 {
		return 0, v.verdict(io.EOF)
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := v.bytes.Read(p[:min(int64(len(p)), v.left)])
	v.sum = crc32.Update(v.sum, castagnoli, p[:n])
	v.left -= int64(n)
	switch {
	case v.left == 0:
		if err := v.verdict(nil); err != nil {
			return 0, err
		}
		return n, nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// verdict returns err, or ErrCorrupt or ErrPending if what was read is not what the head is of.
func (v *verifier) verdict(err error) error {
	switch {
	case v.head.HasSum && v.sum != v.head.Sum:
		return fmt.Errorf("encoder: the bytes of %v do not have their checksum: %w", v.head.Object.Key, tier.ErrCorrupt)
	case v.head.HasSum:
		return err
	}
	// A writer may write in place.
	now, failed := v.file.Stat()
	switch {
	case failed != nil:
		return fmt.Errorf("encoder: import of %v: %w", v.head.Object.Key, failed)
	case now.Size() != v.info.Size() || !now.ModTime().Equal(v.info.ModTime()):
		return fmt.Errorf("encoder: the file of %v was written while it was read; import it again: %w",
			v.head.Object.Key, tier.ErrPending)
	}
	return err
}
