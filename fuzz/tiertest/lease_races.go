package tiertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/tier"
)

// leaseModel is what a level with leases has, as a table.
type leaseModel struct {
	there    map[string]bool
	pinned   map[string]map[string]bool // by lease and name
	reserved map[string]string          // lease by name
}

// kept reports whether a lease has an object.
func (m *leaseModel) kept(name string) bool {
	for _, names := range m.pinned {
		if names[name] {
			return true
		}
	}
	return m.reserved[name] != ""
}

// stat is the answer of Stat, Get and Pin.
func (m *leaseModel) stat(name string) error {
	switch {
	case m.there[name]:
		return nil
	case m.reserved[name] != "":
		return tier.ErrPending
	}
	return tier.ErrNotFound
}

func (m *leaseModel) release(id string) {
	delete(m.pinned, id)
	for name, of := range m.reserved {
		if of == id {
			delete(m.reserved, name)
		}
	}
}

// leaseHistory: random calls of a few leases, one at a time, do what a table does.
func leaseHistory(b *bed) {
	b.open(0)
	run := 0
	rapid.Check(b, func(t *rapid.T) {
		run++
		space := fmt.Sprintf("run %d", run)
		m := leaseModel{map[string]bool{}, map[string]map[string]bool{}, map[string]string{}}
		leases := map[string]tier.Lease{}
		defer func() {
			for _, l := range leases {
				l.Release()
			}
			for name := range m.there {
				b.l.Delete(background, []tier.Key{{Space: space, Name: name}})
			}
		}()
		expect := func(what string, got, want error) {
			if want == nil && got != nil || !errors.Is(got, want) {
				t.Fatalf("%s: the error is %v, expected %v", what, got, want)
			}
		}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		draw := func(t *rapid.T) (objects []tier.Object, keys []tier.Key) {
			for range rapid.IntRange(1, 3).Draw(t, "elements") {
				o := tier.Object{Key: tier.Key{Space: space, Name: names.Draw(t, "name")}}
				o.Size = int64(o.Name[0]) * 10
				if o.Name == "b" || o.Name == "c" {
					o.Parent = "a"
				}
				objects, keys = append(objects, o), append(keys, o.Key)
			}
			return objects, keys
		}
		lease := func(t *rapid.T) (string, tier.Lease) {
			id := fmt.Sprintf("%s %d", space, rapid.IntRange(0, 2).Draw(t, "lease"))
			if leases[id] == nil {
				l, err := b.memory().Lease(background, tier.LeaseOptions{ID: id})
				expect("Lease", err, nil)
				leases[id], m.pinned[id] = l, map[string]bool{}
			}
			return id, leases[id]
		}
		t.Repeat(map[string]func(*rapid.T){
			"pin": func(t *rapid.T) {
				id, l := lease(t)
				objects, keys := draw(t)
				for i, p := range l.Pin(keys) {
					want := m.stat(keys[i].Name)
					expect("Pin", p.Err, want)
					if want == nil {
						if err := whole(p.Object, p.Bytes, objects[i]); err != nil {
							t.Fatalf("Pin: %v", err)
						}
						m.pinned[id][keys[i].Name] = true
					}
				}
			},
			"unpin": func(t *rapid.T) {
				id, l := lease(t)
				_, keys := draw(t)
				l.Unpin(keys)
				for _, k := range keys {
					delete(m.pinned[id], k.Name)
				}
			},
			"reserve": func(t *rapid.T) {
				id, l := lease(t)
				objects, _ := draw(t)
				placed := l.Reserve(objects)
				for i, p := range placed {
					name := objects[i].Name
					switch want := m.stat(name); {
					case want == nil:
						expect("Reserve", p.Err, tier.ErrExists)
					case errors.Is(want, tier.ErrPending):
						expect("Reserve", p.Err, tier.ErrPending)
					default:
						expect("Reserve", p.Err, nil)
						write(p)
						m.reserved[name] = id
					}
				}
			},
			"commit": func(t *rapid.T) {
				id, l := lease(t)
				_, keys := draw(t)
				for i, err := range l.Commit(keys) {
					name := keys[i].Name
					if m.reserved[name] != id {
						expect("Commit", err, tier.ErrNotFound)
						continue
					}
					expect("Commit", err, nil)
					delete(m.reserved, name)
					m.there[name], m.pinned[id][name] = true, true
				}
			},
			"abort": func(t *rapid.T) {
				id, l := lease(t)
				_, keys := draw(t)
				for i, err := range l.Abort(keys) {
					if m.reserved[keys[i].Name] != id {
						expect("Abort", err, tier.ErrNotFound)
						continue
					}
					expect("Abort", err, nil)
					delete(m.reserved, keys[i].Name)
				}
			},
			"release": func(t *rapid.T) {
				id, l := lease(t)
				l.Release()
				m.release(id)
				delete(leases, id)
			},
			"put": func(t *rapid.T) {
				objects, _ := draw(t)
				var puts []tier.Put
				for _, o := range objects {
					puts = append(puts, putOf(o))
				}
				b.l.Put(background, puts)
				for i, p := range puts {
					if m.reserved[objects[i].Name] != "" {
						expect("Put", p.Err, tier.ErrPending)
						continue
					}
					expect("Put", p.Err, nil)
					m.there[objects[i].Name] = true
				}
			},
			"delete": func(t *rapid.T) {
				_, keys := draw(t)
				for i, err := range b.l.Delete(background, keys) {
					name := keys[i].Name
					switch {
					case m.kept(name):
						expect("Delete", err, tier.ErrInUse)
					case m.there[name]:
						expect("Delete", err, nil)
						delete(m.there, name)
					default:
						expect("Delete", err, tier.ErrNotFound)
					}
				}
			},
			"get": func(t *rapid.T) {
				objects, keys := draw(t)
				gets := make([]tier.Get, len(keys))
				for i, k := range keys {
					gets[i].Key = k
				}
				b.l.Get(background, gets)
				found := b.l.Stat(background, keys)
				for i, g := range gets {
					want := m.stat(keys[i].Name)
					expect("Get", g.Err, want)
					expect("Stat", found[i].Err, want)
					if want == nil {
						if err := whole(g.Object, g.Bytes, objects[i]); err != nil {
							t.Fatalf("Get: %v", err)
						}
					}
				}
			},
			"": func(t *rapid.T) {
				for id, l := range leases {
					var pinned, reserved []tier.Object
					for name := range m.pinned[id] {
						pinned = append(pinned, tier.Object{Key: tier.Key{Space: space, Name: name}})
					}
					for name, of := range m.reserved {
						if of == id {
							reserved = append(reserved, tier.Object{Key: tier.Key{Space: space, Name: name}})
						}
					}
					if s := l.State(); !sameKeys(s.Pinned, pinned) || !sameKeys(s.Reserved, reserved) {
						t.Fatalf("lease %q has %v pinned and %v reserved, expected %v and %v", id, s.Pinned,
							s.Reserved, keysOf(pinned), keysOf(reserved))
					}
				}
				if n := len(b.memory().Leases()); n != len(leases) {
					t.Fatalf("Leases has %d leases, and %d are open", n, len(leases))
				}
				if u := b.l.Usage(); u.Objects != int64(len(m.there)) {
					t.Fatalf("Usage has %d objects, and %d are there", u.Objects, len(m.there))
				}
			},
		})
	})
	b.has()
	b.free()
}

// leaseHistories: random calls of many leases at a time, in a level that is full. What a lease has stays as
// it is.
func leaseHistories(b *bed) {
	for round := range b.o.Histories {
		var unit int64
		if b.o.Unlimited {
			b.open(0)
			unit = 3000
		} else {
			unit = b.openLimited() / 2
		}
		named := func(n int) tier.Object {
			o := object(fmt.Sprint(n), unit-int64(n))
			if n > 0 {
				o.Parent = fmt.Sprint((n - 1) / 2)
			}
			return o
		}
		b.together(5, func(g int) error {
			r := rand.New(rand.NewPCG(uint64(round), uint64(g)))
			id := fmt.Sprintf("lease %d", g)
			for range 2 {
				l, err := b.memory().Lease(background, tier.LeaseOptions{ID: id})
				if err != nil {
					return fmt.Errorf("Lease beside others: %w", err)
				}
				if err := b.leaseSteps(r, l, named); err != nil {
					return fmt.Errorf("beside other leases: %w", err)
				}
				l.Release()
			}
			return nil
		})
		b.free()
		b.deleteAll()
	}
}

// leaseSteps does random calls with a lease of its own, and checks what it has after each.
func (b *bed) leaseSteps(r *rand.Rand, l tier.Lease, named func(int) tier.Object) error {
	var pinned []tier.Placed
	var reserved []tier.Object
	has := func(k tier.Key) bool {
		return slices.ContainsFunc(pinned, func(p tier.Placed) bool { return p.Object.Key == k })
	}
	for range 30 {
		o := named(r.IntN(30))
		switch r.IntN(7) {
		case 0:
			puts := []tier.Put{putOf(o)}
			b.l.Put(background, puts)
			if err := puts[0].Err; err != nil && !errors.Is(err, tier.ErrFull) && !errors.Is(err, tier.ErrPending) {
				return fmt.Errorf("Put: %w", err)
			}
		case 1:
			p := l.Pin([]tier.Key{o.Key})[0]
			if err := absentOr(p.Err); p.Err != nil && err != nil {
				return fmt.Errorf("Pin: %w", err)
			}
			if p.Err == nil && !has(o.Key) && len(pinned) < 3 {
				pinned = append(pinned, p)
			} else if p.Err == nil && !has(o.Key) {
				l.Unpin([]tier.Key{o.Key})
			}
		case 2:
			p := l.Reserve([]tier.Object{o})[0]
			switch {
			case p.Err == nil && len(reserved) < 2:
				write(p)
				reserved = append(reserved, o)
			case p.Err == nil:
				if err := l.Abort([]tier.Key{o.Key})[0]; err != nil {
					return fmt.Errorf("Abort: %w", err)
				}
			case !errors.Is(p.Err, tier.ErrExists) && !errors.Is(p.Err, tier.ErrPending) &&
				!errors.Is(p.Err, tier.ErrFull):
				return fmt.Errorf("Reserve: %w", p.Err)
			}
		case 3:
			if len(reserved) == 0 {
				continue
			}
			if err := l.Commit([]tier.Key{reserved[0].Key})[0]; err != nil {
				return fmt.Errorf("Commit: %w", err)
			}
			p := l.Pin([]tier.Key{reserved[0].Key})[0]
			if p.Err != nil {
				return fmt.Errorf("Pin of what was committed: %w", p.Err)
			}
			pinned, reserved = append(pinned, p), reserved[1:]
		case 4:
			if len(pinned) == 0 {
				continue
			}
			l.Unpin([]tier.Key{pinned[0].Object.Key})
			pinned = pinned[1:]
		case 5:
			err := b.l.Delete(background, []tier.Key{o.Key})[0]
			if has(o.Key) != errors.Is(err, tier.ErrInUse) &&
				(has(o.Key) || absentOr(err) != nil && !errors.Is(err, tier.ErrInUse)) {
				return fmt.Errorf("Delete, of what this lease has pinned: %v: %w", has(o.Key), errOr(err))
			}
		case 6:
			gets := []tier.Get{{Key: o.Key}}
			b.l.Get(background, gets)
			if err := absentOr(gets[0].Err); err != nil {
				return fmt.Errorf("Get: %w", err)
			}
			if gets[0].Err == nil {
				if err := whole(gets[0].Object, gets[0].Bytes, o); err != nil {
					return err
				}
			}
		}
		for _, p := range pinned {
			if err := whole(p.Object, p.Bytes, p.Object); err != nil {
				return fmt.Errorf("what is pinned: %w", err)
			}
			f := b.l.Stat(background, []tier.Key{p.Object.Key})[0]
			if f.Err != nil {
				return fmt.Errorf("Stat of what is pinned: %w", f.Err)
			}
		}
		for _, o := range reserved {
			if f := b.l.Stat(background, []tier.Key{o.Key})[0]; !errors.Is(f.Err, tier.ErrPending) {
				return fmt.Errorf("Stat of what is reserved: %w", errOr(f.Err))
			}
		}
		if err := bounds(b.l.Usage()); err != nil {
			return err
		}
	}
	return nil
}
