package encoder_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"slices"
	"sync"

	"github.com/ringcache/ringcache/tier"
)

// mapLevel is the least level: a map.
type mapLevel struct {
	mu      sync.Mutex
	objects map[tier.Key]tier.Object
	data    map[tier.Key][]byte
	onPut   func(tier.Object) error
	onGet   func(tier.Object) error
	listErr error
	trusts  bool // Put does not look whether a stream goes on
}

func newMapLevel() *mapLevel {
	return &mapLevel{objects: map[tier.Key]tier.Object{}, data: map[tier.Key][]byte{}}
}

func (l *mapLevel) Name() string      { return "map" }
func (l *mapLevel) Usage() tier.Usage { return tier.Usage{} }
func (l *mapLevel) Close() error      { return nil }

func (l *mapLevel) Stat(_ context.Context, keys []tier.Key) []tier.Found {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]tier.Found, len(keys))
	for i, k := range keys {
		o, ok := l.objects[k]
		if out[i].Object = o; !ok {
			out[i].Err = tier.ErrNotFound
		}
	}
	return out
}

func (l *mapLevel) Get(_ context.Context, gets []tier.Get) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range gets {
		g := &gets[i]
		o, ok := l.objects[g.Key]
		if !ok {
			g.Err = tier.ErrNotFound
			continue
		}
		g.Object = o
		if l.onGet != nil {
			if g.Err = l.onGet(o); g.Err != nil {
				continue
			}
		}
		switch {
		case g.To != nil:
			// in pieces, as a disk would
			for b := l.data[g.Key]; len(b) > 0 && g.Err == nil; {
				n := min(len(b), 1000)
				_, g.Err = g.To.Write(b[:n])
				b = b[n:]
			}
		case g.Into != nil:
			if g.Bytes, g.Err = g.Into(o); g.Err == nil {
				copy(g.Bytes, l.data[g.Key])
			}
		default:
			g.Bytes = bytes.Clone(l.data[g.Key])
		}
	}
}

func (l *mapLevel) Put(_ context.Context, puts []tier.Put) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range puts {
		p := &puts[i]
		if p.Err = p.Object.Validate(); p.Err != nil {
			continue
		}
		if l.onPut != nil {
			if p.Err = l.onPut(p.Object); p.Err != nil {
				continue
			}
		}
		if _, ok := l.objects[p.Object.Key]; ok {
			continue
		}
		data := p.Bytes
		if p.From != nil {
			data = make([]byte, p.Object.Size)
			if _, p.Err = io.ReadFull(p.From, data); p.Err != nil {
				continue
			}
			if p.Err = l.end(p.From); p.Err != nil {
				continue
			}
		}
		l.objects[p.Object.Key], l.data[p.Object.Key] = p.Object, bytes.Clone(data)
	}
}

func (l *mapLevel) Delete(_ context.Context, keys []tier.Key) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		delete(l.objects, k)
	}
	return make([]error, len(keys))
}

func (l *mapLevel) List(_ context.Context, space string) iter.Seq2[tier.Object, error] {
	return func(yield func(tier.Object, error) bool) {
		l.mu.Lock()
		var all []tier.Object
		for k, o := range l.objects {
			if space == "" || k.Space == space {
				all = append(all, o)
			}
		}
		l.mu.Unlock()
		slices.SortFunc(all, func(a, b tier.Object) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
		if l.listErr != nil {
			yield(tier.Object{}, l.listErr)
		}
	}
}

// end reports, as an fs.ErrInvalid, that a stream goes on.
func (l *mapLevel) end(from io.Reader) error {
	if l.trusts {
		return nil
	}
	if n, err := from.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return errors.Join(fs.ErrInvalid, err)
	}
	return nil
}
