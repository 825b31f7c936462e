package tiertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringcache/ringcache/tier"
)

// afterGet changes each answer of Get.
func afterGet(change func(g *tier.Get)) func(b *broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i := range gets {
				change(&gets[i])
			}
		}
	}
}

// onGet changes each element of Get.
func onGet(change func(g *tier.Get)) func(b *broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			for i := range gets {
				g := gets[i]
				change(&g)
				one := []tier.Get{g}
				b.Map.Get(ctx, one)
				one[0].Into, one[0].To = gets[i].Into, gets[i].To
				gets[i] = one[0]
			}
		}
	}
}

// onPut changes each element of Put, and its answer by the function that change returns.
func onPut(change func(b *broken, p *tier.Put) func(err error) error) func(b *broken) {
	return func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := range puts {
				one := []tier.Put{puts[i]}
				after := change(b, &one[0])
				b.Map.Put(ctx, one)
				puts[i].Err = one[0].Err
				if after != nil {
					puts[i].Err = after(one[0].Err)
				}
			}
		}
	}
}

// describes changes the descriptions of all answers.
func describes(change func(o *tier.Object)) func(b *broken) {
	return func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			for i := range found {
				change(&found[i].Object)
			}
			return found
		}
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i := range gets {
				change(&gets[i].Object)
			}
		}
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(ctx, space) {
					change(&o)
					if !yield(o, err) {
						return
					}
				}
			}
		}
	}
}

// names stores objects under other keys.
func names(change func(k tier.Key) tier.Key) func(b *broken) {
	return func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := range puts {
				one := []tier.Put{puts[i]}
				o := &one[0].Object
				if o.Key = change(o.Key); o.Parent == o.Name {
					o.Parent += "?"
				}
				b.Map.Put(ctx, one)
				puts[i].Err = one[0].Err
			}
		}
		b.get = func(ctx context.Context, gets []tier.Get) {
			for i := range gets {
				one := []tier.Get{gets[i]}
				one[0].Key = change(gets[i].Key)
				b.Map.Get(ctx, one)
				gets[i].Object, gets[i].Bytes, gets[i].Err = one[0].Object, one[0].Bytes, one[0].Err
				gets[i].Object.Key = gets[i].Key
			}
		}
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := make([]tier.Found, len(keys))
			for i, k := range keys {
				found[i] = b.Map.Stat(ctx, []tier.Key{change(k)})[0]
				found[i].Object.Key = k
			}
			return found
		}
	}
}

// counted changes Usage.
func counted(change func(u *tier.Usage)) func(b *broken) {
	return func(b *broken) {
		b.usage = func() tier.Usage {
			u := b.Map.Usage()
			change(&u)
			return u
		}
	}
}

// evicts makes room in front of each Put by a rule of its own: the oldest of those that may go.
func evicts(may func(m *Map, x *entry, o tier.Object) bool) func(b *broken) {
	return onPut(func(b *broken, p *tier.Put) func(error) error {
		b.makeRoom(p.Object, may)
		return nil
	})
}

// evictOne takes the oldest object without children, as if one had to be stored.
func (b *broken) evictOne() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x := b.victim(); x != nil {
		b.remove(x)
		b.evicted++
	}
}

// uses returns when objects were used.
func (b *broken) uses() map[tier.Key]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	uses := map[tier.Key]int64{}
	for k, x := range b.objects {
		uses[k] = x.used
	}
	return uses
}

func (b *broken) setUses(uses map[tier.Key]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, used := range uses {
		if x := b.objects[k]; x != nil {
			x.used = used
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (r readerFunc) Read(p []byte) (int, error) { return r(p) }

// afterCalls does something after each Get.
func afterCalls(do func(b *broken)) func(b *broken) {
	return func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			do(b)
		}
	}
}

func (b *broken) makeRoom(o tier.Object, may func(m *Map, x *entry, o tier.Object) bool) {
	m := b.Map
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.o.Capacity > 0 && m.bytes+m.size(o) > m.o.Capacity && m.objects[o.Key] == nil && m.size(o) <= m.o.Capacity {
		var victim *entry
		for _, x := range m.objects {
			if may(m, x, o) && (victim == nil || x.used < victim.used) {
				victim = x
			}
		}
		if victim == nil {
			return
		}
		m.remove(victim)
		m.evicted++
	}
}

// hasChild reports whether an object has a child in the level.
func (m *Map) hasChild(x *entry) bool {
	for _, y := range m.objects {
		if k, ok := y.ParentKey(); ok && k == x.Key {
			return true
		}
	}
	return false
}

// reopens changes what is opened again.
func reopens(change func(m *Map)) func(b *broken) {
	return func(b *broken) {
		b.reopen = func(m *Map) *Map {
			n := m.Reopen()
			n.mu.Lock()
			defer n.mu.Unlock()
			change(n)
			return n
		}
	}
}

// ignores takes the end of the context from a method.
func ignores(method string) func(b *broken) {
	return func(b *broken) {
		switch method {
		case "Stat":
			b.stat = func(_ context.Context, keys []tier.Key) []tier.Found { return b.Map.Stat(background, keys) }
		case "Get":
			b.get = func(_ context.Context, gets []tier.Get) { b.Map.Get(background, gets) }
		case "Put":
			b.put = func(_ context.Context, puts []tier.Put) { b.Map.Put(background, puts) }
		case "Delete":
			b.delete = func(_ context.Context, keys []tier.Key) []error { return b.Map.Delete(background, keys) }
		case "List":
			b.list = func(_ context.Context, space string) iter.Seq2[tier.Object, error] {
				return b.Map.List(background, space)
			}
		}
	}
}

// begun ignores the end of a context in calls that had begun.
func begun(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return ctx
	}
	return background
}

// afterClose gives a method that goes on after Close.
func afterClose(set func(b *broken, live func() *Map)) func(b *broken) {
	return func(b *broken) {
		var kept atomic.Pointer[Map] // Close may be called twice at a time
		kept.Store(b.Map)
		b.close = func() error {
			kept.Store(b.Map.Reopen())
			return b.Map.Close()
		}
		set(b, kept.Load)
	}
}

// pad makes a stream of exactly n bytes.
func pad(p *tier.Put) {
	if p.From == nil {
		return
	}
	all, err := io.ReadAll(io.LimitReader(p.From, p.Object.Size))
	p.From, p.Bytes = nil, append(all, make([]byte, max(p.Object.Size-int64(len(all)), 0))...)
	if err != nil {
		p.From = &badReader{err}
	}
}

type badReader struct{ err error }

func (r *badReader) Read([]byte) (int, error) { return 0, r.err }

// failOn changes an error of Put that is one of these.
func failOn(from, to error) func(b *broken) {
	return onPut(func(*broken, *tier.Put) func(error) error {
		return func(err error) error {
			if errors.Is(err, from) {
				return to
			}
			return err
		}
	})
}

// reusesRoom clears the bytes of an object when it has gone, also under a reader.
func reusesRoom(b *broken) {
	var mu sync.Mutex
	had := map[*entry]bool{}
	b.put = func(ctx context.Context, puts []tier.Put) {
		b.Map.Put(ctx, puts)
		b.mu.Lock()
		defer b.mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		for x := range had {
			if b.objects[x.Key] != x {
				clear(x.bytes)
			}
		}
		for _, x := range b.objects {
			had[x] = true
		}
	}
}

var levelDefects = []defect{
	{"a new level has an object", "empty", func(b *broken) {
		b.Map.Put(background, []tier.Put{putOf(object("left", 1))})
	}},
	{"no name", "empty", func(b *broken) { b.name = func() string { return "" } }},
	{"a new level counts bytes", "empty", counted(func(u *tier.Usage) { u.Bytes += 100 })},
	{"Delete of what is absent succeeds", "empty", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys)
			for i := range errs {
				if errors.Is(errs[i], tier.ErrNotFound) {
					errs[i] = nil
				}
			}
			return errs
		}
	}},
	{"a miss is ErrUnavailable", "empty", afterGet(func(g *tier.Get) {
		if g.Err != nil {
			g.Err = tier.ErrUnavailable
		}
	})},
	{"a miss is corrupt", "empty", afterGet(func(g *tier.Get) {
		if g.Err != nil {
			g.Err = errors.Join(g.Err, tier.ErrCorrupt)
		}
	})},

	{"empty objects are not stored", "round trip", onPut(func(_ *broken, p *tier.Put) func(error) error {
		if p.Object.Size == 0 {
			p.Object.Space = "nowhere"
		}
		return nil
	})},
	{"the last byte of a page is lost", "round trip", afterGet(func(g *tier.Get) {
		if len(g.Bytes) == 4096 {
			g.Bytes[4095] = 0
		}
	})},
	{"bytes from 65536 on are the first ones", "round trip", afterGet(func(g *tier.Get) {
		if len(g.Bytes) > 65536 {
			copy(g.Bytes[65536:], g.Bytes)
		}
	})},
	{"a stream that ends with its last bytes loses them", "round trip",
		onPut(func(_ *broken, p *tier.Put) func(error) error {
			if p.From != nil {
				from := p.From
				p.From = readerFunc(func(to []byte) (int, error) {
					n, err := from.Read(to)
					if errors.Is(err, io.EOF) {
						n = 0
					}
					return n, err
				})
			}
			return nil
		})},
	{"one read is the whole stream", "round trip", onPut(func(_ *broken, p *tier.Put) func(error) error {
		if p.From != nil {
			to := make([]byte, p.Object.Size)
			n, _ := p.From.Read(to)
			p.From, p.Bytes = nil, to[:n]
		}
		return nil
	})},

	{"an empty object needs bytes", "round trip", onPut(func(_ *broken, p *tier.Put) func(error) error {
		if p.Bytes == nil && p.From == nil {
			p.Object.Name = ""
		}
		return nil
	})},
	{"bytes come before the stream", "round trip", onPut(func(_ *broken, p *tier.Put) func(error) error {
		if p.Bytes != nil {
			p.From = nil
		}
		return nil
	})},
	{"Put keeps the caller's memory", "own memory", onPut(func(b *broken, p *tier.Put) func(error) error {
		return func(err error) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if x := b.objects[p.Object.Key]; err == nil && x != nil && p.Bytes != nil && x.state == there {
				x.bytes = p.Bytes
			}
			return err
		}
	})},
	{"Get returns the level's memory", "own memory", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			b.mu.Lock()
			defer b.mu.Unlock()
			for i, g := range gets {
				if x := b.objects[g.Key]; g.Bytes != nil && x != nil {
					gets[i].Bytes = x.bytes
				}
			}
		}
	}},

	{"Put changes the caller's bytes", "own memory", onPut(func(_ *broken, p *tier.Put) func(error) error {
		own := p.Bytes
		p.Bytes = bytes.Clone(own)
		clear(own)
		return nil
	})},
	{"Put forgets the caller's object", "own memory", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			b.Map.Put(ctx, puts)
			for i := range puts {
				puts[i].Object = tier.Object{}
			}
		}
	}},
	{"Get leaves an old error", "stale answers", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			for i := range gets {
				one := []tier.Get{gets[i]}
				b.Map.Get(ctx, one)
				if one[0].Err == nil {
					one[0].Err = gets[i].Err
				}
				gets[i] = one[0]
			}
		}
	}},
	{"Get leaves old bytes", "stale answers", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			for i := range gets {
				one := []tier.Get{gets[i]}
				b.Map.Get(ctx, one)
				if one[0].Err != nil {
					one[0].Bytes = gets[i].Bytes
				}
				gets[i] = one[0]
			}
		}
	}},
	{"Put leaves an old error", "stale answers", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := range puts {
				old := puts[i].Err
				b.Map.Put(ctx, puts[i:i+1])
				if puts[i].Err == nil {
					puts[i].Err = old
				}
			}
		}
	}},

	{"Stat answers in another order", "batches", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			slices.Reverse(found)
			return found
		}
	}},
	{"Stat answers for what is there only", "batches", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			if len(keys) > 1 {
				found = slices.DeleteFunc(found, func(f tier.Found) bool { return f.Err != nil })
			}
			return found
		}
	}},
	{"Get answers in another order", "batches", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i, j := 0, len(gets)-1; i < j; i, j = i+1, j-1 {
				gets[i].Object, gets[j].Object = gets[j].Object, gets[i].Object
				gets[i].Bytes, gets[j].Bytes = gets[j].Bytes, gets[i].Bytes
				gets[i].Err, gets[j].Err = gets[j].Err, gets[i].Err
			}
		}
	}},
	{"a miss ends a batch of Get", "batches", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			var failed error
			for i := range gets {
				if failed != nil {
					gets[i].Err = failed
					continue
				}
				b.Map.Get(ctx, gets[i:i+1])
				failed = gets[i].Err
			}
		}
	}},
	{"the same key twice is answered once", "batches", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			seen := map[tier.Key]bool{}
			for i, g := range gets {
				if seen[g.Key] {
					gets[i].Bytes, gets[i].Object = nil, tier.Object{}
				}
				seen[g.Key] = true
			}
		}
	}},
	{"Delete answers in another order", "batches", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys)
			slices.Reverse(errs)
			return errs
		}
	}},
	{"Delete sorts the caller's keys", "batches", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys)
			slices.SortFunc(keys, func(x, y tier.Key) int { return strings.Compare(x.Name, y.Name) })
			return errs
		}
	}},
	{"Stat sorts the caller's keys", "batches", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			slices.SortFunc(keys, func(x, y tier.Key) int { return strings.Compare(x.Name, y.Name) })
			return found
		}
	}},
	{"Get changes the caller's keys", "batches", afterGet(func(g *tier.Get) {
		if g.Err != nil {
			g.Key = tier.Key{}
		}
	})},
	{"Delete of a batch deletes the first", "batches", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys[:min(len(keys), 1)])
			for len(errs) < len(keys) {
				errs = append(errs, errs[0])
			}
			return errs
		}
	}},

	{"a batch has at most 512 elements", "large batch", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) { b.Map.Put(ctx, puts[:min(len(puts), 512)]) }
	}},

	{"Put replaces what is there", "put again", onPut(func(b *broken, p *tier.Put) func(error) error {
		if p.Bytes != nil || p.From != nil {
			b.Map.Delete(background, []tier.Key{p.Object.Key})
		}
		return nil
	})},
	{"Put replaces the note of what is there", "put again", onPut(func(b *broken, p *tier.Put) func(error) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if x := b.objects[p.Object.Key]; x != nil {
			x.Note = p.Object.Note
		}
		return nil
	})},
	{"Put of what is there is an error", "put again", onPut(func(b *broken, p *tier.Put) func(error) error {
		was := b.Map.Stat(background, []tier.Key{p.Object.Key})[0].Err
		return func(err error) error {
			if was == nil && err == nil {
				return tier.ErrExists
			}
			return err
		}
	})},
	{"Put of what is there counts its bytes again", "put again", onPut(func(b *broken, p *tier.Put) func(error) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if x := b.objects[p.Object.Key]; x != nil {
			b.bytes += x.Size
		}
		return nil
	})},
	{"Put of another size of what is there is refused", "put again",
		onPut(func(b *broken, p *tier.Put) func(error) error {
			f := b.Map.Stat(background, []tier.Key{p.Object.Key})[0]
			return func(err error) error {
				if f.Err == nil && f.Object.Size != p.Object.Size {
					return fs.ErrInvalid
				}
				return err
			}
		})},

	{"a batch is put from its end", "put again", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := len(puts) - 1; i >= 0; i-- {
				b.Map.Put(ctx, puts[i:i+1])
			}
		}
	}},
	{"an invalid object is stored", "invalid", onPut(func(b *broken, p *tier.Put) func(error) error {
		p.Object.Cost = max(p.Object.Cost, 0)
		return nil
	})},
	{"a long note is cut", "invalid", onPut(func(b *broken, p *tier.Put) func(error) error {
		p.Object.Note = p.Object.Note[:min(len(p.Object.Note), tier.MaxNote)]
		return nil
	})},
	{"an invalid element refuses the batch", "invalid", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for _, p := range puts {
				if err := p.Object.Validate(); err != nil {
					for i := range puts {
						puts[i].Err = err
					}
					return
				}
			}
			b.Map.Put(ctx, puts)
		}
	}},
	{"an invalid key is a miss", "invalid", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			for i := range found {
				if errors.Is(found[i].Err, fs.ErrInvalid) {
					found[i].Err = tier.ErrNotFound
				}
			}
			return found
		}
	}},
	{"an invalid key panics", "invalid", onGet(func(g *tier.Get) {
		if len(g.Key.Name) > tier.MaxName {
			panic("index out of range")
		}
	})},

	{"forgets the note", "descriptions", describes(func(o *tier.Object) { o.Note = nil })},
	{"a note is a text", "descriptions", describes(func(o *tier.Object) { o.Note = bytes.ToValidUTF8(o.Note, nil) })},
	{"a note has at most 255 bytes", "descriptions", describes(func(o *tier.Object) {
		o.Note = o.Note[:min(len(o.Note), 255)]
	})},
	{"forgets the tenant", "descriptions", describes(func(o *tier.Object) { o.Tenant = "" })},
	{"forgets the parent", "descriptions", describes(func(o *tier.Object) { o.Parent = "" })},
	{"forgets the cost", "descriptions", describes(func(o *tier.Object) { o.Cost = 0 })},
	{"a cost in microseconds", "descriptions", describes(func(o *tier.Object) {
		o.Cost = o.Cost.Truncate(time.Microsecond)
	})},
	{"a tenant is a line", "descriptions", describes(func(o *tier.Object) {
		o.Tenant, _, _ = strings.Cut(o.Tenant, "\n")
	})},
	{"List forgets the note", "descriptions", func(b *broken) {
		describes(func(o *tier.Object) { o.Note = nil })(b)
		b.stat, b.get = nil, nil
	}},
	{"Into sees no note", "descriptions", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				o.Note = nil
				return into(o)
			}
		}
	})},

	{"names are paths", "odd keys", names(func(k tier.Key) tier.Key {
		if k.Name != "" {
			k.Name = path.Clean(k.Name)
		}
		return k
	})},
	{"names have no case", "odd keys", names(func(k tier.Key) tier.Key { k.Name = strings.ToLower(k.Name); return k })},
	{"names are trimmed", "odd keys", names(func(k tier.Key) tier.Key {
		if name := strings.TrimSpace(k.Name); name != "" {
			k.Name = name
		}
		return k
	})},
	{"names are cut at 255 bytes", "odd keys", names(func(k tier.Key) tier.Key {
		k.Name = k.Name[:min(len(k.Name), 255)]
		return k
	})},
	{"names are UTF-8", "odd keys", names(func(k tier.Key) tier.Key {
		k.Name = strings.ToValidUTF8(k.Name, "?")
		return k
	})},
	{"names are escaped once too often", "odd keys", names(func(k tier.Key) tier.Key {
		k.Name = strings.ReplaceAll(k.Name, "%2F", "/")
		return k
	})},
	{"temporary names are hidden", "odd keys", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(ctx, space) {
					if !strings.HasSuffix(o.Name, ".tmp") && !yield(o, err) {
						return
					}
				}
			}
		}
	}},

	{"space and name are joined", "spaces", names(func(k tier.Key) tier.Key {
		if k.Validate() != nil {
			return k
		}
		joined := k.Space + "/" + k.Name
		return tier.Key{Name: joined[:min(len(joined), tier.MaxName)]}
	})},
	{"spaces have no case", "spaces", names(func(k tier.Key) tier.Key {
		k.Space = strings.ToLower(k.Space)
		return k
	})},
	{"List of a space has all", "spaces", func(b *broken) {
		b.list = func(ctx context.Context, _ string) iter.Seq2[tier.Object, error] { return b.Map.List(ctx, "") }
	}},
	{"List of a space has those that begin like it", "spaces", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(ctx, "") {
					if strings.HasPrefix(o.Space, space) && !yield(o, err) {
						return
					}
				}
			}
		}
	}},
	{"Delete deletes in all spaces", "spaces", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			errs := b.Map.Delete(ctx, keys)
			for o := range b.Map.List(ctx, "") {
				if len(keys) == 1 && o.Name == keys[0].Name {
					b.Map.Delete(ctx, []tier.Key{o.Key})
				}
			}
			return errs
		}
	}},

	{"a short stream is filled with zeros", "streams in", onPut(func(_ *broken, p *tier.Put) func(error) error {
		pad(p)
		return nil
	})},
	{"the rest of a long stream is left", "streams in", onPut(func(_ *broken, p *tier.Put) func(error) error {
		if p.From != nil {
			p.From = io.LimitReader(p.From, p.Object.Size)
		}
		return nil
	})},
	{"the error of a stream is its end", "streams in", onPut(func(_ *broken, p *tier.Put) func(error) error {
		return func(err error) error {
			if errors.Is(err, errStream) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	})},
	{"a short stream is fs.ErrInvalid", "streams in", failOn(io.ErrUnexpectedEOF, fs.ErrInvalid)},
	{"what a bad stream had stays", "streams in", onPut(func(b *broken, p *tier.Put) func(error) error {
		return func(err error) error {
			if err != nil && p.From != nil {
				b.Map.Put(background, []tier.Put{{Object: p.Object, Bytes: make([]byte, p.Object.Size)}})
			}
			return err
		}
	})},
	{"a bad stream keeps its key", "streams in", func(b *broken) {
		failed := map[tier.Key]bool{}
		onPut(func(_ *broken, p *tier.Put) func(error) error {
			return func(err error) error {
				if failed[p.Object.Key] {
					return tier.ErrPending
				}
				failed[p.Object.Key] = err != nil
				return err
			}
		})(b)
	}},
	{"a bad stream ends the batch", "streams in", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			var failed error
			for i := range puts {
				if puts[i].Err = failed; failed == nil {
					b.Map.Put(ctx, puts[i:i+1])
					failed = puts[i].Err
				}
			}
		}
	}},
	{"bytes of another number are taken", "streams in", onPut(func(_ *broken, p *tier.Put) func(error) error {
		if p.From == nil && p.Object.Size == 100 {
			p.Bytes = append(slices.Clone(p.Bytes), make([]byte, 101)...)[:100]
		}
		return nil
	})},

	{"To and bytes", "streams out", afterGet(func(g *tier.Get) {
		if g.To != nil && g.Err == nil {
			g.Bytes = []byte{1}
		}
	})},
	{"To and Into", "streams out", afterGet(func(g *tier.Get) {
		if g.To != nil && g.Into != nil {
			_, _ = g.Into(g.Object)
		}
	})},
	{"the error of To is lost", "streams out", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, errStream) {
			g.Err = nil
		}
	})},
	{"To that takes less is fine", "streams out", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, io.ErrShortWrite) {
			g.Err = nil
		}
	})},
	{"an error of To drops the object", "streams out", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for _, g := range gets {
				if g.To != nil && g.Err != nil {
					b.Map.Delete(ctx, []tier.Key{g.Key})
				}
			}
		}
	}},

	{"Into is called twice", "into", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				_, _ = into(o)
				return into(o)
			}
		}
	})},
	{"Into is called for a miss", "into", afterGet(func(g *tier.Get) {
		if g.Into != nil && g.Err != nil {
			_, _ = g.Into(g.Object)
		}
	})},
	{"Into's memory is not used", "into", afterGet(func(g *tier.Get) { g.Bytes = bytes.Clone(g.Bytes) })},
	{"Into's memory is written to its capacity", "into", afterGet(func(g *tier.Get) {
		if g.Into != nil && cap(g.Bytes) > len(g.Bytes) {
			g.Bytes[:len(g.Bytes)+1][len(g.Bytes)] = 0
		}
	})},
	{"Into gets no description", "into", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) { return into(tier.Object{Key: o.Key, Size: o.Size}) }
		}
	})},
	{"Into is called for empty objects only with their bytes", "into", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				if o.Size == 0 {
					return nil, nil
				}
				return into(o)
			}
		}
	})},

	{"Into may not return nil", "into", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				p, err := into(o)
				if p == nil && err == nil {
					err = fs.ErrInvalid
				}
				return p, err
			}
		}
	})},
	{"Into's error is a miss", "into refused", afterGet(func(g *tier.Get) {
		if g.Into != nil && g.Err != nil {
			g.Err = tier.ErrNotFound
		}
	})},
	{"Into's memory may be shorter", "into refused", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				p, err := into(o)
				return append(slices.Clone(p), make([]byte, o.Size)...)[:o.Size], err
			}
		}
	})},
	{"Into's memory may be longer", "into refused", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				p, err := into(o)
				return p[:min(int64(len(p)), o.Size)], err
			}
		}
	})},
	{"Into's capacity is enough", "into refused", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				p, err := into(o)
				if int64(len(p)) < o.Size && int64(cap(p)) >= o.Size {
					p = p[:o.Size]
				}
				return p, err
			}
		}
	})},
	{"Into's error ends the batch", "into refused", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i := 1; i < len(gets); i++ {
				if gets[i-1].Err != nil {
					gets[i].Err = gets[i-1].Err
				}
			}
		}
	}},
	{"Into is asked again after an error", "into refused", onGet(func(g *tier.Get) {
		if into := g.Into; into != nil {
			g.Into = func(o tier.Object) ([]byte, error) {
				p, err := into(o)
				if err != nil {
					return into(o)
				}
				return p, err
			}
		}
	})},

	{"List goes on after a break", "list", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(ctx, space) {
					yield(o, err)
				}
			}
		}
	}},
	{"a list can be read once", "list", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			read := false
			return func(yield func(tier.Object, error) bool) {
				if !read {
					read = true
					b.Map.List(ctx, space)(yield)
				}
			}
		}
	}},
	{"List loses one object", "list", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				first := true
				for o, err := range b.Map.List(ctx, space) {
					if !first && !yield(o, err) {
						return
					}
					first = false
				}
			}
		}
	}},
	{"List holds the lock", "list", func(b *broken) {
		lock := make(chan struct{}, 1)
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				lock <- struct{}{}
				defer func() { <-lock }()
				b.Map.List(ctx, space)(yield)
			}
		}
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			lock <- struct{}{}
			defer func() { <-lock }()
			return b.Map.Delete(ctx, keys)
		}
	}},
	{"List goes on after an error", "list", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(background, space) {
					if err == nil {
						err = ctx.Err()
					}
					if !yield(o, err) {
						return
					}
				}
			}
		}
	}},
	{"List has an object again", "list while changing", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				var again *tier.Object
				for o, err := range b.Map.List(ctx, space) {
					if strings.HasPrefix(o.Name, "coming") {
						again = nil
					} else if again == nil {
						again = &o
					}
					if !yield(o, err) {
						return
					}
				}
				if again != nil && again.Name != "" {
					yield(*again, nil)
				}
			}
		}
	}},
	{"a change ends List", "list while changing", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				begin := 0
				for o, err := range b.Map.List(ctx, space) {
					b.mu.Lock()
					if begin == 0 {
						begin = int(b.next)
					}
					changed := begin != int(b.next)
					b.mu.Unlock()
					if changed || !yield(o, err) {
						return
					}
					time.Sleep(time.Microsecond)
				}
			}
		}
	}},

	{"Delete leaves the bytes", "counts", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			b.mu.Lock()
			for _, k := range keys {
				if x := b.objects[k]; x != nil {
					b.bytes++
				}
			}
			b.mu.Unlock()
			return b.Map.Delete(ctx, keys)
		}
	}},
	{"Delete counts as evicted", "counts", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			b.mu.Lock()
			b.evicted++
			b.mu.Unlock()
			return b.Map.Delete(ctx, keys)
		}
	}},
	{"empty objects are not counted", "counts", func(b *broken) {
		b.usage = func() tier.Usage {
			u := b.Map.Usage()
			for o := range b.Map.List(background, "") {
				if o.Size == 0 {
					u.Objects--
				}
			}
			return u
		}
	}},
	{"everything is held", "counts", counted(func(u *tier.Usage) { u.Held = u.Bytes })},
	{"more is held than there is", "counts", counted(func(u *tier.Usage) { u.Held = u.Bytes + 1 })},
	{"half of the bytes are counted", "counts", counted(func(u *tier.Usage) { u.Bytes /= 2 })},
	{"a tenant's bytes stay", "counts", func(b *broken) {
		most := map[string]int64{}
		counted(func(u *tier.Usage) {
			for tenant, n := range u.Tenants {
				most[tenant] = max(most[tenant], n)
				u.Tenants[tenant] = most[tenant]
			}
		})(b)
	}},
	{"tenants are counted together", "counts", counted(func(u *tier.Usage) {
		u.Tenants = map[string]int64{"a": u.Bytes}
	})},
	{"Get counts bytes", "counts", afterCalls(func(b *broken) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.bytes++
	})},

	{"Stat ignores the context", "context ended before", ignores("Stat")},
	{"Get ignores the context", "context ended before", ignores("Get")},
	{"Put ignores the context", "context ended before", ignores("Put")},
	{"Delete ignores the context", "context ended before", ignores("Delete")},
	{"List ignores the context", "context ended before", ignores("List")},
	{"a context that has ended is ErrUnavailable", "context ended before", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, context.Canceled) {
			g.Err = tier.ErrUnavailable
		}
	})},
	{"a context that has ended leaves the object", "context ended before", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			b.Map.Put(background, puts)
			for i := range puts {
				if ctx.Err() != nil {
					puts[i].Err = ctx.Err()
				}
			}
		}
	}},
	{"a Put goes on when the context ends", "context ends in Put", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) { b.Map.Put(begun(ctx), puts) }
	}},
	{"the rest of a batch goes on when the context ends", "context ends in Put", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := range puts {
				one := ctx
				if i > 0 && puts[i-1].Err != nil {
					one = background
				}
				b.Map.Put(one, puts[i:i+1])
			}
		}
	}},
	{"the end of the context undoes the batch", "context ends in Put", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			b.Map.Put(ctx, puts)
			if ctx.Err() != nil {
				for i := range puts {
					b.Map.Delete(background, []tier.Key{puts[i].Object.Key})
				}
			}
		}
	}},
	{"half an object stays when the context ends", "context ends in Put",
		onPut(func(b *broken, p *tier.Put) func(error) error {
			return func(err error) error {
				if errors.Is(err, context.Canceled) && p.From != nil {
					b.Map.Put(background, []tier.Put{{Object: p.Object, Bytes: make([]byte, p.Object.Size)}})
				}
				return err
			}
		})},
	{"the end of the context is a short stream", "context ends while a stream waits",
		failOn(context.Canceled, io.ErrUnexpectedEOF)},
	{"a Get goes on when the context ends", "context ends in Get", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) { b.Map.Get(begun(ctx), gets) }
	}},
	{"the end of the context loses bytes", "context ends in Get", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i := range gets {
				if ctx.Err() != nil && gets[i].Err != nil && i > 200 {
					gets[i].Err = nil
				}
			}
		}
	}},

	{"List has what is being written", "invisible while written", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				b.mu.Lock()
				var all []tier.Object
				for _, x := range b.objects {
					all = append(all, x.Object)
				}
				b.mu.Unlock()
				for _, o := range all {
					if !yield(o, nil) {
						return
					}
				}
			}
		}
	}},
	{"what is being written is counted", "invisible while written", func(b *broken) {
		b.usage = func() tier.Usage {
			u := b.Map.Usage()
			b.mu.Lock()
			defer b.mu.Unlock()
			u.Objects = int64(len(b.objects))
			return u
		}
	}},
	{"Get of what is being written is zeros", "invisible while written", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, tier.ErrPending) {
			g.Err = nil
		}
	})},
	{"Stat of what is being written succeeds", "invisible while written", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			found := b.Map.Stat(ctx, keys)
			for i := range found {
				if errors.Is(found[i].Err, tier.ErrPending) {
					found[i].Err = nil
				}
			}
			return found
		}
	}},
	{"Put of what is being written succeeds", "pending while written", failOn(tier.ErrPending, nil)},
	{"Put of what is being written waits", "pending while written", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := range puts {
				for {
					b.Map.Put(ctx, puts[i:i+1])
					if !errors.Is(puts[i].Err, tier.ErrPending) {
						break
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
	}},

	{"one reader at a time", "read together", func(b *broken) {
		var readers atomic.Int32
		b.get = func(ctx context.Context, gets []tier.Get) {
			defer readers.Add(-1)
			alone := readers.Add(1) == 1
			time.Sleep(100 * time.Microsecond)
			b.Map.Get(ctx, gets)
			for i := range gets {
				if !alone {
					gets[i].Bytes, gets[i].Err = nil, tier.ErrUnavailable
				}
			}
		}
	}},
	{"room is used again while it is read", "deleted while read", reusesRoom},
	{"what is read goes for room", "evicted while read", reusesRoom},
	{"closing twice fails", "closed", func(b *broken) {
		var closed atomic.Bool
		b.close = func() error {
			if closed.Swap(true) {
				return fs.ErrClosed
			}
			return b.Map.Close()
		}
	}},
	{"Get after Close", "closed", afterClose(func(b *broken, live func() *Map) {
		b.get = func(ctx context.Context, gets []tier.Get) { live().Get(ctx, gets) }
	})},
	{"Stat after Close", "closed", afterClose(func(b *broken, live func() *Map) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found { return live().Stat(ctx, keys) }
	})},
	{"Put after Close", "closed", afterClose(func(b *broken, live func() *Map) {
		b.put = func(ctx context.Context, puts []tier.Put) { live().Put(ctx, puts) }
	})},
	{"Delete after Close", "closed", afterClose(func(b *broken, live func() *Map) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error { return live().Delete(ctx, keys) }
	})},
	{"List after Close", "closed", afterClose(func(b *broken, live func() *Map) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object,
			error] {
			return live().List(ctx, space)
		}
	})},
	{"List after Close is empty", "closed", func(b *broken) {
		b.list = func(ctx context.Context, space string) iter.Seq2[tier.Object, error] {
			return func(yield func(tier.Object, error) bool) {
				for o, err := range b.Map.List(ctx, space) {
					if errors.Is(err, fs.ErrClosed) || !yield(o, err) {
						return
					}
				}
			}
		}
	}},
	{"a closed level is unavailable", "closed", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, fs.ErrClosed) {
			g.Err = tier.ErrUnavailable
		}
	})},
	{"Close hangs when called twice", "closed", func(b *broken) {
		lock := make(chan struct{}, 1)
		b.close = func() error {
			select {
			case lock <- struct{}{}:
				return b.Map.Close()
			case <-time.After(5 * time.Second):
				return nil
			}
		}
	}},
	{"Close does not wait", "close waits", func(b *broken) {
		b.close = func() error {
			go b.Map.Close()
			return nil
		}
	}},
	{"Close leaves a goroutine", "goroutines", func(b *broken) {
		done := make(chan struct{})
		go func() { <-done }()
		time.AfterFunc(3*time.Second, func() { close(done) })
	}},

	{"too large is full", "too large", failOn(tier.ErrTooLarge, tier.ErrFull)},
	{"too large costs everything", "too large", onPut(func(b *broken, p *tier.Put) func(error) error {
		if p.Object.Size > b.o.Capacity && b.o.Capacity > 0 {
			b.mu.Lock()
			for _, x := range b.objects {
				b.remove(x)
				b.evicted++
			}
			b.mu.Unlock()
		}
		return nil
	})},
	{"the size overflows", "too large", onPut(func(b *broken, p *tier.Put) func(error) error {
		if p.Object.Size == math.MaxInt64 {
			p.Object.Size, p.From, p.Bytes = 0, nil, nil
		}
		return nil
	})},
	{"too large ends the batch", "too large", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			for i := range puts {
				if i > 0 && errors.Is(puts[i-1].Err, tier.ErrTooLarge) {
					puts[i].Err = puts[i-1].Err
					continue
				}
				b.Map.Put(ctx, puts[i:i+1])
			}
		}
	}},

	{"one object more than the capacity", "capacity", func(b *broken) {
		if capacity := b.o.Capacity; capacity > 0 {
			b.o.Capacity += capacity / 16
			counted(func(u *tier.Usage) { u.Capacity = capacity })(b)
		}
	}},
	{"no capacity in Usage", "capacity", counted(func(u *tier.Usage) { u.Capacity = 0 })},
	{"what goes is not counted", "capacity", counted(func(u *tier.Usage) { u.Evicted = 0 })},
	{"what is put goes at once", "capacity", onPut(func(b *broken, p *tier.Put) func(error) error {
		return func(err error) error {
			if b.Map.Usage().Evicted > 0 {
				b.Map.Delete(background, []tier.Key{p.Object.Key})
			}
			return err
		}
	})},
	{"room is lost with each eviction", "capacity", func(b *broken) {
		onPut(func(b *broken, p *tier.Put) func(error) error {
			before := b.Map.Usage().Evicted
			return func(err error) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.bytes += (b.evicted - before) * 100
				return err
			}
		})(b)
	}},
	{"a stream makes no room", "capacity", func(b *broken) {
		capacity := b.o.Capacity
		onPut(func(b *broken, p *tier.Put) func(error) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if p.From == nil || capacity == 0 {
				return nil
			}
			b.o.Capacity = 2 * capacity
			return func(err error) error {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.o.Capacity = capacity
				return err
			}
		})(b)
	}},
	{"a full level is full", "capacity", onPut(func(b *broken, p *tier.Put) func(error) error {
		u := b.Map.Usage()
		if u.Capacity > 0 && u.Bytes+p.Object.Size+100 > u.Capacity && p.Object.Size < u.Capacity {
			p.Object.Key.Name, p.Object.Parent = "", ""
			return func(error) error { return tier.ErrFull }
		}
		return nil
	})},

	{"Put of what is there makes room", "refused evicts nothing", func(b *broken) {
		onPut(func(b *broken, p *tier.Put) func(error) error {
			if b.Map.Stat(background, []tier.Key{p.Object.Key})[0].Err == nil {
				b.evictOne()
			}
			return nil
		})(b)
	}},
	{"an invalid Put makes room", "refused evicts nothing", onPut(func(b *broken, p *tier.Put) func(error) error {
		if p.From == nil && int64(len(p.Bytes)) != p.Object.Size {
			b.evictOne()
		}
		return nil
	})},
	{"a broken stream keeps its room", "refused evicts nothing", onPut(func(b *broken, p *tier.Put) func(error) error {
		return func(err error) error {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.bytes += p.Object.Size / 8
			}
			return err
		}
	})},
	{"Get is no use", "Get is a use", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			uses := b.uses()
			b.Map.Get(ctx, gets)
			b.setUses(uses)
		}
	}},
	{"Get with To is no use", "Get is a use", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			uses := b.uses()
			b.Map.Get(ctx, gets)
			if gets[0].To != nil {
				b.setUses(uses)
			}
		}
	}},
	{"Get with Into is no use", "Get is a use", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			uses := b.uses()
			b.Map.Get(ctx, gets)
			if gets[0].Into != nil {
				b.setUses(uses)
			}
		}
	}},
	{"Stat is a use", "Stat is no use", func(b *broken) {
		b.stat = func(ctx context.Context, keys []tier.Key) []tier.Found {
			b.mu.Lock()
			for _, k := range keys {
				if x := b.objects[k]; x != nil {
					b.use(x)
				}
			}
			b.mu.Unlock()
			return b.Map.Stat(ctx, keys)
		}
	}},
	{"each Get is a use", "Get without a use", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			for i := range gets {
				gets[i].NoUse = false
			}
			b.Map.Get(ctx, gets)
		}
	}},

	{"the oldest goes, with children or not", "children first", evicts(func(_ *Map, x *entry, _ tier.Object) bool {
		return !x.held()
	})},
	{"a parent goes with its last but one child", "branches", evicts(func(m *Map, x *entry, _ tier.Object) bool {
		children := 0
		for _, y := range m.objects {
			if k, ok := y.ParentKey(); ok && k == x.Key {
				children++
			}
		}
		return !x.held() && children < 2
	})},
	{"the oldest goes, but parents of what is stored", "branches", evicts(func(_ *Map, x *entry, o tier.Object) bool {
		return !x.held() && x.Name != o.Parent
	})},
	{"a late parent is no parent", "late parents", evicts(func(m *Map, x *entry, _ tier.Object) bool {
		for _, y := range m.objects {
			if k, ok := y.ParentKey(); ok && k == x.Key && y.offset > x.offset {
				return false
			}
		}
		return !x.held()
	})},
	{"orphans stay for ever", "childless goes", onPut(func(b *broken, p *tier.Put) func(error) error {
		b.makeRoom(p.Object, func(m *Map, x *entry, _ tier.Object) bool {
			k, ok := x.ParentKey()
			return !x.held() && !m.hasChild(x) && (!ok || m.objects[k] != nil)
		})
		if u := b.Map.Usage(); u.Bytes+p.Object.Size+100 > u.Capacity {
			p.Object.Name = ""
			return func(error) error { return tier.ErrFull }
		}
		return nil
	})},
	{"parents stay for ever", "childless goes", onPut(func(b *broken, p *tier.Put) func(error) error {
		b.makeRoom(p.Object, func(m *Map, x *entry, _ tier.Object) bool {
			return !x.held() && !m.hasChild(x) && !strings.HasPrefix(x.Name, "parent")
		})
		if u := b.Map.Usage(); u.Bytes+p.Object.Size+100 > u.Capacity {
			p.Object.Name = ""
			return func(error) error { return tier.ErrFull }
		}
		return nil
	})},
	{"an ancestor goes for what is stored", "ancestors stay", evicts(func(_ *Map, x *entry, _ tier.Object) bool {
		return !x.held()
	})},
	{"the parent goes for what is stored", "ancestors stay", evicts(func(m *Map, x *entry, _ tier.Object) bool {
		return !x.held() && !m.hasChild(x)
	})},
	{"the leaf goes for what is refused", "ancestors stay", onPut(func(b *broken, p *tier.Put) func(error) error {
		return func(err error) error {
			if errors.Is(err, tier.ErrFull) {
				b.evictOne()
			}
			return err
		}
	})},
	{"no room is too large", "ancestors stay", failOn(tier.ErrFull, tier.ErrTooLarge)},
	{"grandparents count as unrelated", "ancestors before others", evicts(func(m *Map, x *entry, o tier.Object) bool {
		return !x.held() && x.Name != o.Parent
	})},
	{"a batch that has no room is refused", "chain as batch", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			var sum int64
			for _, p := range puts {
				sum += p.Object.Size
			}
			if b.o.Capacity > 0 && sum > b.o.Capacity {
				for i := range puts {
					puts[i].Err = tier.ErrFull
				}
				return
			}
			b.Map.Put(ctx, puts)
		}
	}},
	{"a parent is one in all spaces", "spaces of parents", func(b *broken) {
		onPut(func(b *broken, p *tier.Put) func(error) error {
			u := b.Map.Usage()
			if u.Bytes+p.Object.Size+100 <= u.Capacity {
				return nil
			}
			ancestors := map[string]bool{}
			parents := map[string]string{}
			for o := range b.Map.List(background, "") {
				parents[o.Name] = o.Parent
			}
			for name := p.Object.Parent; name != "" && !ancestors[name]; name = parents[name] {
				ancestors[name] = true
			}
			if len(ancestors) >= len(parents) {
				p.Object.Name = ""
				return func(error) error { return tier.ErrFull }
			}
			return nil
		})(b)
	}},
	{"a circle is gone through for ever", "circles of parents", onPut(func(b *broken, p *tier.Put) func(error) error {
		parents := map[string]string{p.Object.Name: p.Object.Parent}
		for o := range b.Map.List(background, "") {
			parents[o.Name] = o.Parent
		}
		for name, begin := p.Object.Parent, time.Now(); name != ""; name = parents[name] {
			if time.Since(begin) > 2*time.Second {
				break // for this test
			}
		}
		return nil
	})},
	{"a circle can't be deleted", "circles of parents", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			f := b.Map.Stat(ctx, keys[:1])[0]
			if f.Object.Parent != "" && len(keys) == 1 {
				return []error{tier.ErrInUse}
			}
			return b.Map.Delete(ctx, keys)
		}
	}},

	{"damage is not looked for", "damaged", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.mu.Lock()
			for _, x := range b.objects {
				if x.state == there {
					b.publish(x)
				}
			}
			b.mu.Unlock()
			b.Map.Get(ctx, gets)
		}
	}},
	{"damage is a plain miss", "damaged", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, tier.ErrCorrupt) {
			g.Err = tier.ErrNotFound
		}
	})},
	{"damage is no miss", "damaged", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, tier.ErrCorrupt) {
			g.Err = tier.ErrCorrupt
		}
	})},
	{"damage is not counted", "damaged", counted(func(u *tier.Usage) { u.Corrupt = 0 })},
	{"what is damaged stays", "damaged", func(b *broken) {
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i := range gets {
				if errors.Is(gets[i].Err, tier.ErrCorrupt) {
					o := object(gets[i].Key.Name, 5000)
					b.Map.Put(ctx, []tier.Put{putOf(o)})
					b.Damage(o.Key)
				}
			}
		}
	}},
	{"what was damaged can't be put again", "damaged", func(b *broken) {
		bad := map[tier.Key]bool{}
		b.get = func(ctx context.Context, gets []tier.Get) {
			b.Map.Get(ctx, gets)
			for i := range gets {
				if errors.Is(gets[i].Err, tier.ErrCorrupt) {
					bad[gets[i].Key] = true
				}
			}
		}
		b.put = func(ctx context.Context, puts []tier.Put) {
			b.Map.Put(ctx, puts)
			for i := range puts {
				if bad[puts[i].Object.Key] {
					puts[i].Err = tier.ErrPending
				}
			}
		}
	}},

	{"opening again loses notes", "reopened", reopens(func(m *Map) {
		for _, x := range m.objects {
			x.Note = nil
		}
	})},
	{"opening again loses empty objects", "reopened", reopens(func(m *Map) {
		for _, x := range m.objects {
			if x.Size == 0 {
				m.remove(x)
			}
		}
	})},
	{"opening again loses bytes", "reopened", reopens(func(m *Map) {
		for _, x := range m.objects {
			x.bytes = make([]byte, x.Size)
			m.publish(x)
		}
	})},
	{"opening again counts nothing", "reopened", reopens(func(m *Map) { m.bytes = 0 })},
	{"opening again brings deleted objects back", "reopened", func(b *broken) {
		reopens(func(m *Map) {
			o := object("deleted", 300)
			x := &entry{Object: o, bytes: content(o.Key, o.Size)}
			m.publish(x)
			m.objects[o.Key] = x
			m.bytes += m.size(o)
		})(b)
	}},
	{"opening again forgets parents", "reopened full", func(b *broken) {
		old := map[tier.Key]bool{} // empty in a level that is new
		for k := range b.objects {
			old[k] = true
		}
		evicts(func(m *Map, x *entry, _ tier.Object) bool { return !x.held() && (old[x.Key] || !m.hasChild(x)) })(b)
	}},
	{"a kill loses the newest object", "killed", reopens(func(m *Map) {
		var newest *entry
		for _, x := range m.objects {
			if newest == nil || x.used > newest.used {
				newest = x
			}
		}
		m.remove(newest)
	})},
	{"a kill shows what was being written", "killed in Put", func(b *broken) {
		b.reopen = func(m *Map) *Map {
			m.mu.Lock()
			for _, x := range m.objects {
				if x.state == writing {
					x.state = there
				}
			}
			m.mu.Unlock()
			return m.Reopen()
		}
	}},
	{"a kill leaves what was being written pending", "killed in Put", func(b *broken) {
		b.reopen = func(m *Map) *Map {
			m.mu.Lock()
			for _, x := range m.objects {
				if x.state == writing {
					x.state = reserved
				}
			}
			m.mu.Unlock()
			return m.Reopen()
		}
	}},

	{"each Put of many is refused", "same Put", onPut(func(b *broken, p *tier.Put) func(error) error {
		return func(error) error { return tier.ErrPending }
	})},
	{"calls beside Close are unavailable", "close under load", afterGet(func(g *tier.Get) {
		if errors.Is(g.Err, fs.ErrClosed) {
			g.Err = tier.ErrUnavailable
		}
	})},
	{"room is counted after it is taken", "full together", func(b *broken) {
		if capacity := b.o.Capacity; capacity > 0 {
			b.o.Capacity += capacity / 32
			counted(func(u *tier.Usage) { u.Capacity = capacity })(b)
		}
	}},
	{"of two in a batch the second is stored", "history", func(b *broken) {
		b.put = func(ctx context.Context, puts []tier.Put) {
			b.Map.Put(ctx, puts)
			for i, p := range puts {
				for _, q := range puts[:i] {
					if p.Object.Key == q.Object.Key && p.Err == nil && p.Bytes != nil {
						b.Map.Delete(ctx, []tier.Key{p.Object.Key})
						b.Map.Put(ctx, puts[i:i+1])
					}
				}
			}
		}
	}},
	{"Delete takes a neighbour", "histories", func(b *broken) {
		b.delete = func(ctx context.Context, keys []tier.Key) []error {
			if strings.HasPrefix(keys[0].Name, "own") {
				b.Map.Delete(ctx, []tier.Key{key("kept")})
			}
			return b.Map.Delete(ctx, keys)
		}
	}},
}
