package redis

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// Put stores objects. What the server has already is not sent. An object of Bytes is copied once, behind its
// head, and one of From is read into memory first.
//
// What another call of this level is storing is tier.ErrPending; of what another process is storing the first
// is kept.
//
// When a time limit or a connection ends a Put, the server may still store the object, whole.
func (l *Level) Put(ctx context.Context, puts []tier.Put) {
	done, err := l.pieces(ctx, len(puts), func(from, to int) { l.putPiece(ctx, puts[from:to]) })
	for i := done; i < len(puts); i++ {
		puts[i].Err = err
	}
}

func (l *Level) putPiece(ctx context.Context, puts []tier.Put) {
	claims := l.pending.Claims()
	defer claims.Release()
	var left []*writing
	for i := range puts {
		p := &puts[i]
		if p.Err = l.acceptable(p); p.Err == nil {
			left = append(left, &writing{put: p})
		}
	}
	// Another client may store an object between the lookup and the write. If it is evicted or damaged at the
	// next lookup, it is put once more.
	for round := range 2 { // the second round overwrites
		if left = l.absent(ctx, left); len(left) == 0 {
			return
		}
		mine := left[:0]
		for _, w := range left {
			w.over = w.over || round > 0
			if claims.Add(w.put.Object.Key) {
				mine = append(mine, w)
			} else {
				w.put.Err = isPending(w.put.Object.Key)
			}
		}
		left = l.writeAll(ctx, mine)
	}
}

// writeAll sends objects, in several pipelines. A stream, which may be slow, has a pipeline of its own, and
// all objects before it have been sent by then. It returns what write returns.
func (l *Level) writeAll(ctx context.Context, writes []*writing) (again []*writing) {
	for len(writes) > 0 {
		n, bytes := 0, int64(0)
		for n < len(writes) && (n == 0 || bytes+writes[n].put.Object.Size <= pipelineBytes &&
			writes[0].put.From == nil && writes[n].put.From == nil) {
			bytes += writes[n].put.Object.Size
			n++
		}
		again = append(again, l.write(ctx, writes[:n], bytes)...)
		writes = writes[n:]
	}
	return again
}

func (l *Level) acceptable(p *tier.Put) error {
	if err := p.Object.Validate(); err != nil {
		return err
	}
	if _, err := l.settings.Layout.keys(p.Object.Key); err != nil {
		return err
	}
	if err := l.settings.Layout.accept(p.Object); err != nil {
		return err
	}
	if p.From == nil && int64(len(p.Bytes)) != p.Object.Size {
		return fmt.Errorf("tier/redis: object %v has %d bytes, and %d were given: %w", p.Object.Key, p.Object.Size,
			len(p.Bytes), fs.ErrInvalid)
	}
	return nil
}

// absent returns the writes of objects that the server does not have. Damaged values are removed, and foreign
// values are overwritten.
func (l *Level) absent(ctx context.Context, writes []*writing) (absent []*writing) {
	wanted := make([]tier.Key, len(writes))
	for i, w := range writes {
		wanted[i] = w.put.Object.Key
	}
	found, release := l.lookUp(ctx, wanted, false)
	defer release()
	for i, w := range writes {
		switch err := found[i].err; {
		case err == nil:
		case errors.Is(err, errMissing):
			absent = append(absent, w)
		case errors.As(err, new(errDamaged)):
			_ = l.miss(ctx, w.put.Object.Key, &found[i])
			absent = append(absent, w)
		case errors.As(err, new(errForeign)):
			w.over = true
			absent = append(absent, w)
		default:
			w.put.Err = err
		}
	}
	return absent
}

// writing is an object that is being sent to the server.
type writing struct {
	put        *tier.Put
	keys       keys
	body, head []byte // values; body is nil until there is room for it
	cmd        *goredis.StatusCmd
	// over means that the key had a value that is not an object: an empty or a foreign one. It is
	// overwritten.
	over bool
}

// write sends objects. It returns those whose key has got a value meanwhile, which may be another one.
func (l *Level) write(ctx context.Context, writes []*writing, bytes int64) (again []*writing) {
	release, err := l.reserve(ctx, bytes)
	if err != nil {
		for _, w := range writes {
			w.put.Err = err
		}
		return nil
	}
	defer release()
	ready := make([]*writing, 0, len(writes))
	for _, w := range writes {
		if w.put.Err = l.encode(w); w.put.Err == nil {
			ready = append(ready, w)
		}
	}
	l.set(ctx, ready, bytes, func(w *writing) (string, []byte, bool) {
		return w.keys.body, w.body, w.head == nil && !w.over
	})
	var two []*writing // objects whose head has a key of its own, which is written second
	for _, w := range ready {
		switch err := w.cmd.Err(); {
		case errors.Is(err, goredis.Nil):
			again = append(again, w)
		case err != nil:
			w.put.Err = explain(ctx, err)
		case w.head != nil:
			two = append(two, w)
		}
	}
	l.set(ctx, two, 0, func(w *writing) (string, []byte, bool) { return w.keys.head, w.head, !w.over })
	for _, w := range two {
		switch err := w.cmd.Err(); {
		case errors.Is(err, goredis.Nil): // perhaps of another writer of the same bytes
			again = append(again, w)
		case err != nil:
			w.put.Err = explain(ctx, err)
			l.removeBody(ctx, w, err)
		}
	}
	return again
}

// removeBody removes the bytes of an object whose head the server refused, as with OOM, so that they don't
// take room. After any other error, such as a time limit, the server may have the head, and another writer or
// a reader the whole object. If there is a head, another writer has stored it.
func (l *Level) removeBody(ctx context.Context, w *writing, err error) {
	if !errors.As(err, new(goredis.Error)) {
		return
	}
	if n, err := l.client.Exists(ctx, w.keys.head).Result(); err == nil && n == 0 {
		l.client.Unlink(ctx, w.keys.body)
	}
}

// encode makes the values of an object.
func (l *Level) encode(w *writing) error {
	if w.body != nil {
		return nil
	}
	o := w.put.Object
	layout := l.settings.Layout
	at, err := layout.keys(o.Key)
	if err != nil {
		return err
	}
	w.keys = keys{l.settings.Prefix + at.head, l.settings.Prefix + at.body}
	room := layout.room(o)
	w.body = w.put.Bytes
	if w.put.From != nil || room > 0 {
		w.body = make([]byte, room+int(o.Size))
		if w.put.From != nil {
			if err := remote.ReadExactly(w.put.From, w.body[room:], o.Key); err != nil {
				return fmt.Errorf("tier/redis: %w", err)
			}
		} else {
			copy(w.body[room:], w.put.Bytes)
		}
	}
	var front []byte
	front, w.head = layout.front(o, crc32.Checksum(w.body[room:], castagnoli))
	copy(w.body, front)
	return nil
}

// set sends SET for each write, in one pipeline, with NX for keys that must be new.
func (l *Level) set(ctx context.Context, writes []*writing, bytes int64,
	part func(*writing) (key string, value []byte, fresh bool)) {
	if len(writes) == 0 {
		return
	}
	pipe := l.client.Pipeline()
	for _, w := range writes {
		key, value, fresh := part(w)
		args := []any{"set", key, value}
		if fresh {
			args = append(args, "nx")
		}
		if ttl := l.settings.TTL; ttl > 0 {
			args = append(args, "px", ttl.Milliseconds())
		}
		w.cmd = goredis.NewStatusCmd(ctx, args...)
		_ = pipe.Process(ctx, w.cmd)
	}
	l.exec(ctx, pipe, bytes)
}
