package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
	"github.com/ringcache/ringcache/tier"
)

// short is a request of one call, which keeps an object in place while its bytes are copied.
type short struct {
	shmstore.Request
	id string
}

// begin starts a short request. It ends with l.done.
func (l *Level) begin() (*short, error) {
	s, _ := l.shortTerm.Get().(*short)
	if s == nil {
		s = &short{id: shortPrefix + strconv.FormatUint(l.shorts.Add(1), 10)}
	}
	if err := s.BeginIn(l.store, shmstore.RequestOptions{ID: s.id}); err != nil {
		return nil, err
	}
	return s, nil
}

func (l *Level) done(s *short) {
	s.Rollback()
	l.shortTerm.Put(s)
}

// Requests of leases and of calls have ids of different forms.
const (
	shortPrefix = "call/"
	leasePrefix = "lease/"
)

// Get implements tier.Level. The bytes stay in place while they are copied or written to Get.To.
func (l *Level) Get(ctx context.Context, gets []tier.Get) {
	err := l.enter()
	if err == nil {
		defer l.calls.Done()
	}
	for i := range gets {
		g := &gets[i]
		g.Object, g.Bytes, g.Err = tier.Object{}, nil, err
		if err == nil {
			g.Err = check(ctx, g.Key)
		}
		if g.Err == nil {
			if g.Err = l.get(ctx, g); g.Err != nil {
				g.Bytes = nil
			}
		}
	}
}

func (l *Level) get(ctx context.Context, g *tier.Get) error {
	r, err := l.begin()
	if err != nil {
		return answer(g.Key, err)
	}
	defer l.done(r)
	x, err := hold(&r.Request, g.Key, g.NoUse)
	if err != nil {
		return answer(g.Key, err)
	}
	o, ok := describeAs(g.Key, x)
	if !ok {
		return &objectError{key: g.Key, kind: tier.ErrNotFound, cause: tier.ErrCorrupt}
	}
	from, err := r.Bytes(x)
	if err != nil {
		return answer(g.Key, err)
	}
	from = tail(from, o.Size)
	g.Object = o
	return deliver(ctx, l.seg, g, from)
}

// deliver copies the bytes of g.Object to where the caller wants them.
func deliver(ctx context.Context, seg *segment.Segment, g *tier.Get, from []byte) (err error) {
	switch {
	case g.To != nil:
		return write(ctx, seg, g, from)
	case g.Into != nil:
		if g.Bytes, err = g.Into(g.Object); err != nil {
			return err
		}
		if int64(len(g.Bytes)) != g.Object.Size {
			return fmt.Errorf("memory: object %v has %d bytes, and Into returned %d: %w", g.Key, g.Object.Size, len(g.Bytes), fs.ErrInvalid)
		}
	default:
		g.Bytes = make([]byte, g.Object.Size)
	}
	return guard(seg, g.Key, func() error { return copyAll(ctx, g.Bytes, from) })
}

// piece bounds what is copied between two looks at a context.
const piece = 8 << 20

func copyAll(ctx context.Context, to, from []byte) error {
	for len(from) > piece {
		copy(to, from[:piece])
		to, from = to[piece:], from[piece:]
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	copy(to, from)
	return ctx.Err()
}

// write writes the bytes of an object to Get.To.
func write(ctx context.Context, seg *segment.Segment, g *tier.Get, from []byte) error {
	for {
		part := from[:min(len(from), piece)]
		err := guard(seg, g.Key, func() error {
			n, err := g.To.Write(part)
			if err == nil && n != len(part) {
				err = io.ErrShortWrite
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if from = from[len(part):]; len(from) == 0 {
			return nil
		}
	}
}

// guard makes a fault of the segment, which something cut short, an error.
func guard(seg *segment.Segment, k tier.Key, f func() error) error {
	err := fault.Guard(f)
	if errors.Is(err, fault.ErrFault) {
		return &objectError{key: k, kind: tier.ErrUnavailable, cause: seg.Explain(err)}
	}
	return err
}

// Put implements tier.Level.
func (l *Level) Put(ctx context.Context, puts []tier.Put) {
	err := l.enter()
	if err == nil {
		defer l.calls.Done()
	}
	for i := range puts {
		p := &puts[i]
		p.Err = err
		if err == nil {
			p.Err = ctx.Err()
		}
		if p.Err == nil {
			p.Err = l.put(ctx, p)
		}
	}
}

func (l *Level) put(ctx context.Context, p *tier.Put) error {
	o := &p.Object
	if err := o.Validate(); err != nil {
		return err
	}
	if p.From == nil && int64(len(p.Bytes)) != o.Size {
		return fmt.Errorf("memory: object %v has %d bytes, and its size is %d: %w", o.Key, len(p.Bytes), o.Size, fs.ErrInvalid)
	}
	r, err := l.begin()
	if err != nil {
		return answer(o.Key, err)
	}
	defer l.done(r)
	res, err := l.reserve(&r.Request, o)
	if err != nil {
		if errors.Is(err, tier.ErrExists) {
			return nil
		}
		return err
	}
	defer res.Discard()
	err = guard(l.seg, o.Key, func() error {
		if p.From != nil {
			return fill(ctx, tail(res.Bytes(), o.Size), p)
		}
		return copyAll(ctx, tail(res.Bytes(), o.Size), p.Bytes)
	})
	if err != nil {
		return err
	}
	_, err = res.Commit(0)
	return answer(o.Key, err)
}

// reserve takes room for an object.
func (l *Level) reserve(r *shmstore.Request, o *tier.Object) (*shmstore.Reservation, error) {
	if o.Size > l.o.Size {
		size, all := sizes.Above(o.Size, l.o.Size)
		return nil, &objectError{key: o.Key, kind: tier.ErrTooLarge, cause: fmt.Errorf("it has %s, and the level %s", size, all)}
	}
	if l.cautious() {
		// What is there already, or reserved, is an answer all the same.
		_, err := l.stat(o.Key)
		switch {
		case err == nil:
			err = &objectError{key: o.Key, kind: tier.ErrExists}
		case errors.Is(err, tier.ErrNotFound):
			err = &objectError{key: o.Key, kind: tier.ErrFull, cause: errCautious}
		}
		return nil, err
	}
	res, err := r.Reserve(keyText(o.Key), lead+int(o.Size), putOptions(o))
	if err == nil {
		if err = guard(l.seg, o.Key, func() error { clear(res.Bytes()[:lead]); return nil }); err != nil {
			res.Discard()
			return nil, err
		}
	}
	return res, answer(o.Key, err)
}

// fill reads exactly the bytes of an object.
func fill(ctx context.Context, to []byte, p *tier.Put) error {
	bad := func(kind error, what string) error {
		return fmt.Errorf("memory: the stream of object %v of %d bytes %s: %w", p.Object.Key, p.Object.Size, what, kind)
	}
	for len(to) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(p.From, to[:min(len(to), piece)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return bad(io.ErrUnexpectedEOF, "ended early")
		}
		if err != nil {
			return err
		}
		to = to[n:]
	}
	var more [1]byte
	switch n, err := io.ReadFull(p.From, more[:]); {
	case n > 0:
		return bad(fs.ErrInvalid, "has more")
	case !errors.Is(err, io.EOF):
		return err
	}
	return ctx.Err()
}
