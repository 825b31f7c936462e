package tiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"

	"github.com/ringcache/ringcache/tier"
)

// Stat implements tier.Level.
func (m *Map) Stat(ctx context.Context, keys []tier.Key) []tier.Found {
	found := make([]tier.Found, len(keys))
	_ = m.call(ctx, func() error { return nil }) // a call looks at the clock, even without keys
	for i, k := range keys {
		found[i].Err = m.call(ctx, func() error {
			x, err := m.find(k)
			if err == nil {
				found[i].Object = x.Object
			}
			return err
		})
	}
	return found
}

// call does something with the lock, as a call of its own.
func (m *Map) call(ctx context.Context, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.begin(); err != nil {
		return err
	}
	defer m.calls.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	return do()
}

// Get implements tier.Level.
func (m *Map) Get(ctx context.Context, gets []tier.Get) {
	for i := range gets {
		m.get(ctx, &gets[i])
	}
}

func (m *Map) get(ctx context.Context, g *tier.Get) {
	g.Object, g.Bytes, g.Err = tier.Object{}, nil, nil
	var from []byte // never changes, also when the object goes
	m.mu.Lock()
	if g.Err = m.begin(); g.Err != nil {
		m.mu.Unlock()
		return
	}
	defer m.calls.Done()
	if g.Err = ctx.Err(); g.Err == nil {
		from, g.Err = m.read(g)
	}
	m.mu.Unlock()
	if g.Err != nil {
		return
	}
	switch {
	case g.To != nil:
		n, err := g.To.Write(from)
		if err == nil && n != len(from) {
			err = io.ErrShortWrite
		}
		g.Err = err
	case g.Into != nil:
		into, err := g.Into(g.Object)
		if err == nil && int64(len(into)) != g.Object.Size {
			err = fmt.Errorf("tiertest: object %v has %d bytes, and Into returned %d: %w", g.Key, g.Object.Size,
				len(into), fs.ErrInvalid)
		}
		if g.Err = err; err == nil {
			copy(into, from)
			g.Bytes = into
		}
	default:
		g.Bytes = append([]byte{}, from...)
	}
	if err := ctx.Err(); err != nil && g.Err == nil {
		g.Bytes, g.Err = nil, err
	}
}

// read returns the bytes of an object that is whole, and sets its description.
func (m *Map) read(g *tier.Get) ([]byte, error) {
	x, err := m.find(g.Key)
	if err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(x.bytes) != x.sum {
		m.drop(x)
		return nil, fmt.Errorf("tiertest: level %s: object %v: %w", m.o.Name, g.Key,
			errors.Join(tier.ErrNotFound, tier.ErrCorrupt))
	}
	if !g.NoUse {
		m.use(x)
	}
	g.Object = x.Object
	return x.bytes, nil
}

// Put implements tier.Level.
func (m *Map) Put(ctx context.Context, puts []tier.Put) {
	for i := range puts {
		puts[i].Err = m.put(ctx, &puts[i])
	}
}

func (m *Map) put(ctx context.Context, p *tier.Put) error {
	o := p.Object
	if err := o.Validate(); err != nil {
		return err
	}
	from := p.From
	if from == nil {
		if int64(len(p.Bytes)) != o.Size {
			return fmt.Errorf("tiertest: object %v has %d bytes, and its size is %d: %w", o.Key, len(p.Bytes), o.Size,
				fs.ErrInvalid)
		}
		from = bytes.NewReader(p.Bytes)
	}
	var x *entry // nil if it is there already
	err := m.call(ctx, func() error {
		switch y := m.objects[o.Key]; {
		case y == nil:
			var err error
			if x, err = m.add(o, writing); err == nil {
				m.calls.Add(1)
			}
			return err
		case y.state != there:
			return fmt.Errorf("tiertest: level %s: object %v: %w", m.o.Name, o.Key, tier.ErrPending)
		}
		return nil
	})
	if x == nil || err != nil {
		return err
	}
	defer m.calls.Done()
	err = fill(ctx, x.bytes, from)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.remove(x)
		return err
	}
	m.publish(x)
	return nil
}

// fill reads exactly the bytes of an object.
func fill(ctx context.Context, to []byte, from io.Reader) error {
	r := contextReader{ctx, from}
	if _, err := io.ReadFull(r, to); errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	var more [1]byte
	n, err := io.ReadFull(r, more[:])
	switch {
	case n > 0:
		return fmt.Errorf("tiertest: the stream of an object of %d bytes has more: %w", len(to), fs.ErrInvalid)
	case !errors.Is(err, io.EOF):
		return err
	}
	return ctx.Err()
}

// contextReader ends with its context, between two reads.
type contextReader struct {
	ctx  context.Context
	from io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.from.Read(p)
}

// Delete implements tier.Level.
func (m *Map) Delete(ctx context.Context, keys []tier.Key) []error {
	errs := make([]error, len(keys))
	for i, k := range keys {
		errs[i] = m.call(ctx, func() error {
			x := m.objects[k]
			if x != nil && (x.state == reserved || x.pins > 0) {
				return fmt.Errorf("tiertest: level %s: object %v: %w", m.o.Name, k, tier.ErrInUse)
			}
			if x != nil && x.state == writing {
				x = nil
			}
			if x == nil {
				if err := k.Validate(); err != nil {
					return err
				}
				return fmt.Errorf("tiertest: level %s: object %v: %w", m.o.Name, k, tier.ErrNotFound)
			}
			m.remove(x)
			return nil
		})
	}
	return errs
}

// List implements tier.Level. It lists what is there when the loop begins.
func (m *Map) List(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		var list []tier.Object
		err := m.call(ctx, func() error {
			for k, x := range m.objects {
				if x.state == there && (space == "" || k.Space == space) {
					list = append(list, x.Object)
				}
			}
			return nil
		})
		for _, o := range list {
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(o, nil) {
				return
			}
		}
		if err != nil {
			yield(tier.Object{}, err)
		}
	}
}
