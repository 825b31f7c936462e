package s3

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/internal/remote"
)

// streamPart is what a Get with To reads at a time, and what it keeps in memory.
const streamPart = 4 << 20

// Get reads objects, several at a time. The bytes go from the connection straight into their place. An object
// that is larger than a part is read in parts, several at a time.
func (l *Level) Get(ctx context.Context, gets []tier.Get) {
	done, err := l.each(ctx, len(gets), func(i int) { l.get(ctx, &gets[i]) })
	for i := done; i < len(gets); i++ {
		gets[i].Object, gets[i].Bytes, gets[i].Err = tier.Object{}, nil, err
	}
}

func (l *Level) get(ctx context.Context, g *tier.Get) {
	g.Object, g.Bytes, g.Err = tier.Object{}, nil, nil
	if g.Err = g.Key.Validate(); g.Err != nil {
		return
	}
	r := &reading{level: l, get: g, key: l.settings.keyOf(g.Key)}
	if g.Err = r.run(ctx); g.Err == nil {
		g.Object, g.Bytes = r.entry.object, r.memory
	}
}

// reading is an object that is being read.
type reading struct {
	level *Level
	get   *tier.Get
	key   string

	entry  entry
	etag   string
	total  int64
	memory []byte // of the object's bytes; nil with To
	placed bool   // memory is the caller's, or was made
	whole  bool   // so many bytes are reserved that memory for any object may be made
}

// needsMemory ends the first request of an object whose memory the level has to make, and that is larger than
// what is reserved.
type needsMemory struct{ bytes int64 }

func (e *needsMemory) Error() string { return fmt.Sprintf("%d bytes of memory are needed", e.bytes) }

// run reads the object, and once more if it was not what was put: it may have been replaced between two parts,
// or the way may have changed it.
func (r *reading) run(ctx context.Context) error {
	if r.get.To != nil {
		err := r.stream(ctx)
		if errors.As(err, new(errDamaged)) && r.total == 0 { // of the head, which was read once
			err = r.level.verifyHead(ctx, r.key, err)
		}
		return r.answer(ctx, err)
	}
	sum, err := r.read(ctx)
	if !errors.As(err, new(errDamaged)) && !errors.Is(err, errChanged) {
		return r.answer(ctx, err)
	}
	again, second := r.read(ctx)
	if errors.As(second, new(errDamaged)) && (again != sum || second.Error() != err.Error()) {
		second = errUnstable{second}
	}
	return r.answer(ctx, second)
}

// answer returns the error for the caller.
func (r *reading) answer(ctx context.Context, err error) error {
	return r.level.miss(ctx, r.get.Key, r.key, r.etag, err)
}

// read reads the object into its memory, and returns the checksum of the bytes that came. After an error the
// checksum is of no object, unless the error is that of the bytes.
func (r *reading) read(ctx context.Context) (sum uint32, err error) {
	l := r.level
	first := l.settings.PartSize
	release, err := l.calls.Reserve(ctx, first)
	if err != nil {
		return 0, err
	}
	err = r.first(ctx, first)
	var more *needsMemory
	if errors.As(err, &more) {
		release()
		if release, err = l.calls.Reserve(ctx, more.bytes); err != nil {
			return 0, err
		}
		r.whole = true
		err = r.first(ctx, first)
	}
	defer func() { release() }()
	if err == nil {
		err = r.rest(ctx, first-r.entry.offset)
	}
	if err != nil {
		return 0, err
	}
	if sum = crc32.Checksum(r.memory, castagnoli); sum != r.entry.sum {
		return sum, damaged("the checksum of its bytes is wrong")
	}
	return sum, nil
}

// first reads the head and the bytes that are with it among the first n.
func (r *reading) first(ctx context.Context, n int64) error {
	return r.level.do(ctx, n, func(ctx context.Context) error {
		return r.level.readRange(ctx, r.key, "", 0, n, func(body io.Reader, total int64, etag string) error {
			if err := r.head(body, total, etag); err != nil {
				return err
			}
			if err := r.place(n); err != nil {
				return err
			}
			return fill(body, r.memory[:min(n-r.entry.offset, r.entry.object.Size)])
		})
	})
}

// head reads the head. Of an object whose memory was placed already it must be the same.
func (r *reading) head(body io.Reader, total int64, etag string) error {
	e, err := r.level.readHead(body, r.key, total, maxHead)
	if err != nil {
		r.etag = etag
		return err
	}
	if e.object.Key != r.get.Key {
		return errForeign{"it is another object"}
	}
	if r.placed && e.object.Size != r.entry.object.Size { // the memory has the size of another object
		return errMissing
	}
	r.entry, r.etag, r.total = e, etag, total
	return nil
}

// place gets the memory from the caller, or makes it. n bytes are reserved.
func (r *reading) place(n int64) error {
	if r.placed {
		return nil
	}
	o := r.entry.object
	if r.get.Into == nil {
		if o.Size > n && !r.whole {
			return &needsMemory{o.Size}
		}
		r.memory, r.placed = make([]byte, o.Size), true
		return nil
	}
	memory, err := r.get.Into(o)
	if err != nil {
		return callerError{err}
	}
	if int64(len(memory)) != o.Size {
		return callerError{fmt.Errorf("tier/s3: Into returned %d bytes for object %v of %d: %w", len(memory), o.Key, o.Size,
			fs.ErrInvalid)}
	}
	r.memory, r.placed = memory, true
	return nil
}

// rest reads what is behind the first bytes, in parts that go straight into their place.
func (r *reading) rest(ctx context.Context, from int64) error {
	l, size, part := r.level, r.entry.object.Size, r.level.settings.PartSize
	if from >= size {
		return nil
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	l.together(int((size-from+part-1)/part), func(helps bool) {
		if helps { // the bytes of the caller are reserved
			release, ok := l.calls.TryReserve(part)
			if !ok {
				return
			}
			defer release()
		}
		for failed.Load() == nil {
			at := from + (next.Add(1)-1)*part
			if at >= size {
				return
			}
			if err := r.part(ctx, at, r.memory[at:min(at+part, size)]); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		}
	})
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// part reads bytes of the object from an offset on.
func (r *reading) part(ctx context.Context, at int64, into []byte) error {
	n := int64(len(into))
	return r.level.do(ctx, n, func(ctx context.Context) error {
		return r.level.readRange(ctx, r.key, r.etag, r.entry.offset+at, n, func(body io.Reader, total int64, _ string) error {
			if total != r.total {
				return errChanged
			}
			return fill(body, into)
		})
	})
}

// fill reads memory full.
func fill(body io.Reader, memory []byte) error {
	if _, err := io.ReadFull(body, memory); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("the answer ends too early: %w", err)
	}
	return nil
}

// errLongerHead is a head that has more bytes than the answer.
var errLongerHead = errors.New("the head is longer")

// readHead reads a head from the beginning of an object of the bucket, which has total bytes, of which at most
// n are in the body.
func (l *Level) readHead(body io.Reader, key string, total, n int64) (entry, error) {
	if total > largest {
		return entry{}, errForeign{fmt.Sprintf("it has %d bytes, the most is %d", total, largest)}
	}
	head := make([]byte, min(headFixed, total), 512)
	if err := fill(body, head); err != nil {
		return entry{}, err
	}
	length, err := headSize(head, total)
	switch {
	case err != nil:
		return entry{}, err
	case int64(length) > n:
		return entry{}, errLongerHead
	}
	head = append(head, make([]byte, length-len(head))...)
	if err := fill(body, head[headFixed:]); err != nil {
		return entry{}, err
	}
	return l.settings.parseHead(key, head, total)
}

// stream writes the object to To, part by part.
func (r *reading) stream(ctx context.Context) error {
	l := r.level
	release, err := l.calls.Reserve(ctx, streamPart)
	if err != nil {
		return err
	}
	defer release()
	var part []byte
	err = l.do(ctx, streamPart, func(ctx context.Context) error {
		return l.readRange(ctx, r.key, "", 0, streamPart, func(body io.Reader, total int64, etag string) error {
			if err := r.head(body, total, etag); err != nil {
				return err
			}
			part = make([]byte, min(streamPart-r.entry.offset, r.entry.object.Size), min(streamPart, r.entry.object.Size))
			return fill(body, part)
		})
	})
	sum, size := uint32(0), r.entry.object.Size
	for done := int64(0); err == nil; {
		sum = crc32.Update(sum, castagnoli, part)
		if err = remote.Write(r.get.To, part); err != nil {
			return callerError{err}
		}
		if done += int64(len(part)); done == size {
			break
		}
		part = part[:min(int64(cap(part)), size-done)]
		err = r.part(ctx, done, part)
	}
	if errors.Is(err, errChanged) { // a part of the first one has been written
		return errMissing
	}
	if err == nil && sum != r.entry.sum {
		return r.level.verify(ctx, r.key, r.etag, sum)
	}
	return err
}
