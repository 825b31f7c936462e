package encoder

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"iter"
	"os"
	"path"

	"github.com/ringcache/ringcache/tier"
)

// Export copies the objects of a space of a level into a folder, which may be one that connectors use, and returns an
// iterator over what it did: each object, with nil when it was copied, tier.ErrExists when the folder has a file of the
// same description already, fs.ErrInvalid for an object that can't be in a tree, or what went wrong.
// Copying goes on after an error, until ctx ends or the loop does. An error without an object is one of the folder
// or of the list, and is the last.
//
// Files appear complete, by rename, after they were synced. Export asks for the whole list before the first copy.
func (t Tree) Export(ctx context.Context, from tier.Level, space, folder string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		root, err := openFolder(folder)
		if err != nil {
			yield(tier.Object{}, fmt.Errorf("encoder: export: %w", err))
			return
		}
		defer root.Close()
		var objects []tier.Object
		for o, err := range from.List(ctx, space) {
			if err != nil {
				yield(tier.Object{}, fmt.Errorf("encoder: export: %w", err))
				return
			}
			if o.Space == space { // a list for an empty space is one of all spaces
				objects = append(objects, o)
			}
		}
		for _, o := range objects {
			if err := ctx.Err(); err != nil {
				yield(o, err)
				return
			}
			if !yield(o, t.exportObject(ctx, from, root, o)) {
				return
			}
		}
	}
}

func openFolder(folder string) (*os.Root, error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	return os.OpenRoot(folder)
}

func (t Tree) exportObject(ctx context.Context, from tier.Level, root *os.Root, o tier.Object) error {
	name, err := t.Path(o.Key)
	if err != nil {
		return err
	}
	head, err := t.AppendHead(nil, o, 0)
	if err != nil {
		return err
	}
	if t.hasFile(root, name, o) {
		return fmt.Errorf("encoder: export of %v: %w", o.Key, tier.ErrExists)
	}
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return fmt.Errorf("encoder: export: %w", err)
	}
	// Beside the target, as connectors do, who pass over each other's.
	temporary := path.Dir(name) + "/.tmp" + rand.Text()[:6]
	f, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("encoder: export: %w", err)
	}
	err = t.fill(ctx, f, head, from, o)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		return fmt.Errorf("encoder: export of %v: %w", o.Key, errors.Join(err, root.Remove(temporary)))
	}
	return nil
}

// hasFile reports whether the file of an object is there, whoever wrote it.
func (t Tree) hasFile(root *os.Root, name string, o tier.Object) bool {
	f, info, err := openRegular(root, name)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := t.ParseHead(name, f, info.Size())
	return err == nil && bytes.Equal(head.Object.Note, o.Note)
}

// fill writes a file. The head has the sum of bytes that are behind it, so it is written twice.
func (t Tree) fill(ctx context.Context, f *os.File, head []byte, from tier.Level, o tier.Object) error {
	if _, err := f.Write(head); err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	w := &countingWriter{to: f, sum: sum}
	get := []tier.Get{{Key: o.Key, To: w}}
	from.Get(ctx, get)
	if err := get[0].Err; err != nil {
		return err
	}
	if w.n != o.Size {
		return fmt.Errorf("the level wrote %d of %d bytes: %w", w.n, o.Size, io.ErrUnexpectedEOF)
	}
	again, err := t.AppendHead(nil, o, sum.Sum32())
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(again, 0); err != nil {
		return err
	}
	return f.Sync()
}

type countingWriter struct {
	to  io.Writer
	sum hash.Hash32
	n   int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	_, _ = w.sum.Write(p[:n])
	w.n += int64(n)
	return n, err
}
