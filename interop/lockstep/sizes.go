package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

type sizeQuestion struct {
	ID    uint64
	Elems []elem
}

type elem struct {
	Key  string
	Data any // tensors as maps, the rest as it is
}

type sizeAnswer struct {
	ID    uint64
	Size  int64
	Error string // Python's, if there is no size
}

// sizes compares what random items count for.
func (s *setup) sizes() error {
	var dtypes []serde.DType
	for _, n := range s.peer.DTypes {
		d, ok := serde.ParseDType(n)
		if !ok {
			return fmt.Errorf("dtype %s of the peer's torch is unknown", n)
		}
		dtypes = append(dtypes, d)
	}
	g := generator{rand.New(rand.NewPCG(s.Seed, 7)), dtypes}
	const batch = 64
	for done := 0; done < s.Requests; {
		var items []*serde.Item
		for range min(batch, s.Requests-done) {
			it := g.item()
			q := sizeQuestion{ID: uint64(len(items)), Elems: []elem{}}
			for _, e := range it.Elems {
				q.Elems = append(q.Elems, elem{Key: e.Key, Data: describe(e.Data)})
			}
			if err := s.w.write(q); err != nil {
				return err
			}
			items = append(items, it)
		}
		if err := s.w.Flush(); err != nil {
			return err
		}
		for i, it := range items {
			var a sizeAnswer
			if err := s.w.read(&a); err != nil {
				return err
			}
			if a.ID != uint64(i) {
				return fmt.Errorf("an answer to %d instead of %d", a.ID, i)
			}
			s.compareSize(it, a)
		}
		done += len(items)
	}
	return nil
}

func (s *setup) compareSize(it *serde.Item, a sizeAnswer) {
	s.report.Requests++
	s.report.Items++
	s.report.Compared++
	size, err := lrusync.ItemSize(it, s.python)
	var text interface{ UpstreamText() string }
	switch {
	case errors.As(err, &text):
		s.report.Unsized++
		if a.Error != "TypeError: "+text.UpstreamText() {
			s.report.differs("%v: vLLM says %q, %d bytes", describeItem(it), a.Error, a.Size)
		}
	case err != nil || a.Error != "" || size != a.Size:
		s.report.differs("%v: vLLM counts %d bytes %s, we %d %v", describeItem(it), a.Size, a.Error, size, err)
	}
}

func describeItem(it *serde.Item) (out []any) {
	for _, e := range it.Elems {
		out = append(out, describe(e.Data))
	}
	return out
}

func describe(d any) any {
	switch d := d.(type) {
	case *serde.Tensor:
		return map[string]any{"dtype": string(d.DType), "shape": d.Shape}
	case []any:
		out := make([]any, len(d))
		for i, e := range d {
			out[i] = describe(e)
		}
		return out
	case bool, int64, uint64, float64:
		return d
	}
	return nil
}

type generator struct {
	*rand.Rand
	dtypes []serde.DType
}

func (g generator) item() *serde.Item {
	it := &serde.Item{}
	for i := range g.IntN(5) {
		it.Elems = append(it.Elems, serde.Elem{Key: fmt.Sprint("elem", i), Data: g.data(3)})
	}
	return it
}

func (g generator) data(depth int) any {
	switch g.IntN(8) {
	case 0:
		return nil
	case 1:
		return g.IntN(2) == 0
	case 2:
		return g.NormFloat64()
	case 3:
		// Sizes change at powers of 2^30, so numbers are near these.
		n := int64(1)<<(30*g.IntN(3)) - 2 + g.Int64N(4)
		return []int64{n, -n, 0, math.MinInt64, math.MaxInt64}[g.IntN(5)]
	case 4:
		return g.Uint64() >> g.IntN(64)
	case 5:
		if depth == 0 {
			return []any{}
		}
		l := make([]any, g.IntN(4))
		for i := range l {
			l[i] = g.data(depth - 1)
		}
		return l
	}
	t := &serde.Tensor{DType: g.dtypes[g.IntN(len(g.dtypes))], Shape: make([]int, g.IntN(4))}
	for i := range t.Shape {
		t.Shape[i] = g.IntN(9)
	}
	return t
}
