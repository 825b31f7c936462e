package shmstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// parentInNote: the note of an object is the key of its parent.
func parentInNote(_ string, note []byte) string { return string(note) }

func family(t testing.TB, o shmstore.Options) *shmstore.Store {
	t.Helper()
	o.Parent = parentInNote
	return private(t, o)
}

// grow puts an object under a parent, which nobody keeps.
func grow(t testing.TB, s *shmstore.Store, key, parent string, n int) error {
	t.Helper()
	r := begin(t, s, "of "+key)
	defer r.Rollback()
	_, err := r.Put(key, make([]byte, n), shmstore.PutOptions{Note: []byte(parent)})
	require.NoError(t, s.CheckStructure())
	return err
}

// chain puts objects, each the parent of the next one.
func chain(t testing.TB, s *shmstore.Store, n int, keys ...string) {
	t.Helper()
	for i, key := range keys {
		parent := ""
		if i > 0 {
			parent = keys[i-1]
		}
		require.NoError(t, grow(t, s, key, parent, n))
	}
}

func which(s *shmstore.Store, keys ...string) string {
	there := ""
	for _, key := range keys {
		if cached(s, key) {
			there += key
		}
	}
	return there
}

func TestOnlyLeavesAreEvicted(t *testing.T) {
	s := family(t, shmstore.Options{Size: 4096})
	chain(t, s, 800, "a", "b", "c", "d")
	require.Equal(t, "abcd", which(s, "a", "b", "c", "d"))
	require.ErrorIs(t, grow(t, s, "e", "d", 800), shmring.ErrFull, "only ancestors of what is stored could go")
	require.Equal(t, "abcd", which(s, "a", "b", "c", "d"))
	require.NoError(t, grow(t, s, "x", "", 800))
	require.Equal(t, "abcx", which(s, "a", "b", "c", "d", "x"))
	ids, err := s.Evict("a", "b")
	require.NoError(t, err)
	require.Empty(t, ids)
	require.True(t, s.Remove("b"), "whatever its children")
	require.NoError(t, s.CheckStructure())
	require.NoError(t, grow(t, s, "y", "", 800))
	require.Equal(t, 1, mustStats(t, s).Evicted)
}

func mustStats(t testing.TB, s *shmstore.Store) shmstore.Stats {
	t.Helper()
	st, err := s.Stats()
	require.NoError(t, err)
	return st
}

// A chain that lies in one piece goes as a whole, if all of its room is needed, or for its tenant, or for entries.
func TestAChainGoesLeafByLeaf(t *testing.T) {
	var gone []string
	o := shmstore.Options{Size: 4096, MaxObjects: 4, Quotas: map[string]int64{"t": 3 << 10}}
	o.Watch = func(c shmstore.Change) {
		if !c.Present {
			gone = append(gone, c.Key)
		}
	}
	s := family(t, o)
	chain(t, s, 800, "a", "b", "c", "d")
	require.NoError(t, grow(t, s, "large", "", 3900))
	require.Equal(t, "dcba", strings.Join(gone, ""))

	gone = nil
	for i, key := range []string{"a", "b", "c"} {
		r := begin(t, s, "r")
		_, err := r.Put(key, make([]byte, 600), shmstore.PutOptions{Tenant: "t", Note: []byte([]string{"", "a", "b"}[i])})
		require.NoError(t, err)
		r.Rollback()
	}
	gone = nil
	r := begin(t, s, "r")
	_, err := r.Put("d", make([]byte, 2700), shmstore.PutOptions{Tenant: "t"})
	require.NoError(t, err)
	r.Rollback()
	require.Equal(t, "cba", strings.Join(gone, ""), "for its quota")
	_, err = s.Evict()
	require.NoError(t, err)
	chain(t, s, 10, "a", "b", "c", "d")
	gone = nil
	require.NoError(t, grow(t, s, "e", "", 10))
	require.Equal(t, "d", strings.Join(gone, ""), "for its entry")
	gone = nil
	ids, err := s.Evict()
	require.NoError(t, err)
	require.Len(t, ids, 4)
	require.Less(t, slices.Index(gone, "c"), slices.Index(gone, "b"))
	require.Less(t, slices.Index(gone, "b"), slices.Index(gone, "a"))
}

func TestAncestorsOfWhatIsLeasedOrStoredStay(t *testing.T) {
	s := family(t, shmstore.Options{Size: 4096})
	chain(t, s, 500, "a", "b", "c")
	r := begin(t, s, "r")
	_, err := r.Lookup("c", 0)
	require.NoError(t, err)
	require.NoError(t, s.CheckStructure())
	var full *shmstore.FullError
	require.ErrorAs(t, grow(t, s, "large", "", 2500), &full)
	require.Zero(t, full.Evictable)
	require.Positive(t, full.Leased)
	require.Zero(t, mustStats(t, s).Evictable)
	r.Drop("c")
	require.Positive(t, mustStats(t, s).Evictable)
	res, err := r.Reserve("d", 100, shmstore.PutOptions{Note: []byte("c")})
	require.NoError(t, err)
	require.NoError(t, s.CheckStructure())
	require.ErrorIs(t, grow(t, s, "large", "", 2500), shmring.ErrFull)
	res.Discard()
	require.NoError(t, grow(t, s, "large", "", 2500))
	require.Equal(t, "", which(s, "c"))
	r.Rollback()
}

// Of a chain of 23 in a store of 20 the first ones are stored, and the next one is refused, however often it is tried.
// Whoever stores stops there: a child of what is absent is an object like others, and costs the end of the chain. What goes
// for another chain with the same beginning is the end of the first one.
func TestChainThatDoesNotFit(t *testing.T) {
	const size = 960 // 1024 with its header
	s := family(t, shmstore.Options{Size: 20 << 10})
	key := func(i int) string { return fmt.Sprintf("long %d", i) }
	count := func() (n int) {
		for n < 23 && cached(s, key(n)) {
			n++
		}
		return n
	}
	parent, stored := "", 0
	for ; stored < 23 && grow(t, s, key(stored), parent, size-100) == nil; stored++ {
		parent = key(stored)
	}
	require.GreaterOrEqual(t, stored, 20)
	require.Less(t, stored, 23)
	for range 3 {
		require.ErrorIs(t, grow(t, s, key(stored), key(stored-1), size-100), shmring.ErrFull)
	}
	require.Equal(t, stored, count())
	require.Zero(t, mustStats(t, s).Evicted)

	parent = key(9)
	for i := range 5 {
		other := fmt.Sprintf("other %d", i)
		require.NoError(t, grow(t, s, other, parent, size-100))
		parent = other
	}
	require.GreaterOrEqual(t, count(), stored-6)
	require.GreaterOrEqual(t, count(), 10)
	require.True(t, cached(s, "other 0") && cached(s, "other 4"))
}

// A reader looks at a child in place: its ancestors stay, and what is beside them goes.
func TestReaderOfAChildKeepsTheFamily(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{Size: 4096, Parent: parentInNote})
	chain(t, s, 800, "a", "b", "c")
	reader, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
	require.NoError(t, err)
	c, err := s.Find("c")
	require.NoError(t, err)
	v, err := reader.Get(c.Handle())
	require.NoError(t, err)
	require.ErrorIs(t, grow(t, s, "large", "", 2500), shmring.ErrFull)
	require.Equal(t, "abc", which(s, "a", "b", "c"))
	_, err = s.Evict()
	require.NoError(t, err)
	require.Equal(t, "abc", which(s, "a", "b", "c"))
	v.Release()
	require.NoError(t, grow(t, s, "large", "", 3500))
	require.Equal(t, "", which(s, "a", "b", "c"))
	require.NoError(t, reader.Close())
}

func TestAChildMayComeBeforeItsParent(t *testing.T) {
	s := family(t, shmstore.Options{Size: 4096})
	require.NoError(t, grow(t, s, "c", "b", 500))
	require.NoError(t, grow(t, s, "b", "a", 500))
	require.NoError(t, grow(t, s, "a", "", 500))
	_, err := s.Evict("a", "b")
	require.NoError(t, err)
	require.Equal(t, "abc", which(s, "a", "b", "c"))
	require.NoError(t, s.Delete("b"))
	require.NoError(t, s.CheckStructure())
	_, err = s.Evict("a")
	require.NoError(t, err)
	require.Equal(t, "c", which(s, "a", "b", "c"), "without b, a has no child")
	require.NoError(t, grow(t, s, "b", "a", 500))
	_, err = s.Evict("b")
	require.NoError(t, err)
	require.Equal(t, "bc", which(s, "a", "b", "c"), "b is the parent again")
}

func TestRingsOfParents(t *testing.T) {
	o := shmstore.Options{Size: 8192, Parent: parentInNote}
	s, o := inFolder(t, o)
	require.NoError(t, grow(t, s, "self", "self", 100))
	require.NoError(t, grow(t, s, "a", "c", 100))
	require.NoError(t, grow(t, s, "b", "a", 100))
	require.NoError(t, grow(t, s, "c", "b", 100))
	require.NoError(t, grow(t, s, "d", "c", 100))
	for _, key := range []string{"a", "b", "c", "d"} {
		r := begin(t, s, key)
		_, err := r.Lookup(key, 0)
		require.NoError(t, err)
		require.NoError(t, s.CheckStructure())
		r.Rollback()
		require.NoError(t, s.CheckStructure())
	}
	require.NoError(t, s.Detach())
	s, _, err := shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	require.NoError(t, s.CheckStructure())
	require.NoError(t, grow(t, s, "large", "", 8000))
	require.Equal(t, "large", which(s, "self", "a", "b", "c", "d", "large"), "nothing is stuck")
}

// After Adopt families are what they were.
func TestAdoptKnowsFamilies(t *testing.T) {
	s, o := inFolder(t, shmstore.Options{Size: 4096, Parent: parentInNote, QuarantineTTL: -1})
	chain(t, s, 700, "a", "b", "c")
	require.NoError(t, grow(t, s, "orphan", "nobody", 100))
	r := begin(t, s, "r")
	_, err := r.Lookup("c", 0)
	require.NoError(t, err)
	require.NoError(t, s.Yield())
	s, a, err := shmstore.Adopt(o)
	require.NoError(t, err)
	ends(t, s)
	require.Equal(t, 4, a.Kept)
	require.Equal(t, 1, a.InUse)
	require.NoError(t, s.CheckStructure())
	require.ErrorIs(t, grow(t, s, "large", "", 2000), shmring.ErrFull, "c is in quarantine, and so its ancestors stay")
	s.Fence().Passed()
	_, err = s.Evict("a", "b")
	require.NoError(t, err)
	require.Equal(t, "abc", which(s, "a", "b", "c"))
	require.NoError(t, grow(t, s, "large", "", 3500))
}

// Whatever happens, no object goes before its children, and all of it can go.
func TestRandomFamilies(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			present := map[string]bool{}
			const names = 24
			parentOf := map[string]string{}
			for i := range names {
				if rng.IntN(4) > 0 {
					parentOf[fmt.Sprint(i)] = fmt.Sprint(rng.IntN(names)) // rings, too
				}
			}
			ringed := func(key string) bool {
				k := key
				for range names {
					if k = parentOf[k]; k == "" || k == key {
						break
					}
				}
				return k == key
			}
			removing := "" // goes whatever its children
			var wrong []string
			o := shmstore.Options{Size: 16 << 10, MaxObjects: 14, Quotas: map[string]int64{"t": 8 << 10}, QuarantineTTL: -1}
			o.Watch = func(c shmstore.Change) {
				present[c.Key] = c.Present
				if c.Present || c.Key == removing || ringed(c.Key) {
					return
				}
				for child, parent := range parentOf {
					if parent == c.Key && present[child] && !ringed(child) {
						wrong = append(wrong, fmt.Sprintf("%s went before %s", c.Key, child))
					}
				}
			}
			s, o := inFolder(t, shmstore.Options{Size: o.Size, MaxObjects: o.MaxObjects, Quotas: o.Quotas, QuarantineTTL: -1, Watch: o.Watch, Parent: parentInNote})
			open := map[string]*shmstore.Request{}
			var reservations []*shmstore.Reservation
			var full, adopted int
			for range 1500 {
				key := fmt.Sprint(rng.IntN(names))
				id := fmt.Sprint(rng.IntN(4))
				r := open[id]
				if r == nil {
					r = begin(t, s, id)
					open[id] = r
				}
				n := rng.IntN(3000)
				po := shmstore.PutOptions{Note: []byte(parentOf[key])}
				if rng.IntN(3) == 0 {
					po.Tenant = "t"
				}
				switch rng.IntN(12) {
				case 0, 1, 2, 3:
					if _, err := r.Put(key, make([]byte, n), po); err != nil {
						full++
					}
				case 4, 5:
					if res, err := r.Reserve(key, n, po); err == nil {
						reservations = append(reservations, res)
					}
				case 6, 7:
					if len(reservations) > 0 {
						res := reservations[0]
						reservations = reservations[1:]
						if _, err := res.Commit(1); err != nil || rng.IntN(2) == 0 {
							res.Discard()
						}
					}
				case 8:
					_, _ = r.Lookup(key, 1)
				case 9:
					if rng.IntN(2) == 0 {
						_ = r.Commit()
						r.Abort()
						if rng.IntN(2) == 0 {
							s.Fence().Passed()
						}
					} else {
						r.Rollback()
					}
					delete(open, id)
				case 10:
					removing = key
					if rng.IntN(2) == 0 {
						s.Remove(key)
					} else {
						_ = s.Delete(key)
					}
					removing = ""
				case 11:
					if rng.IntN(20) > 0 {
						break
					}
					require.NoError(t, s.Yield())
					for _, res := range reservations {
						res.Discard()
					}
					clear(present)
					var err error
					s, _, err = shmstore.Adopt(o)
					require.NoError(t, err)
					ends(t, s)
					open, reservations = map[string]*shmstore.Request{}, nil
					adopted++
				}
				require.NoError(t, s.CheckStructure())
				require.Empty(t, wrong)
			}
			require.Positive(t, full)
			require.Positive(t, adopted)
			for _, res := range reservations {
				res.Discard()
			}
			for _, r := range open {
				r.Rollback()
			}
			s.Fence().Passed()
			_, err := s.Evict()
			require.NoError(t, err)
			require.Zero(t, chunks(t, s), "something is stuck")
		})
	}
}

func TestDelete(t *testing.T) {
	s := private(t, shmstore.Options{Size: 4096, QuarantineTTL: -1})
	require.ErrorIs(t, s.Delete("a"), shmstore.ErrNotFound)
	idle(t, s, "a", 100, 1)
	r := begin(t, s, "r")
	o, err := r.Lookup("a", 0)
	require.NoError(t, err)
	require.ErrorIs(t, s.Delete("a"), segment.ErrBusy)
	r.DropObject(o)
	r.DropObject(o)
	require.NoError(t, s.Delete("a"))
	require.Zero(t, chunks(t, s))
	_, err = r.Reserve("b", 10, shmstore.PutOptions{Tenant: "t"})
	require.NoError(t, err)
	var key *shmstore.KeyError
	require.ErrorAs(t, s.Delete("b"), &key)
	require.True(t, key.Reserved)
	require.Equal(t, map[string]int64{"t": 128}, s.Tenants())
	require.NoError(t, s.Abandon())
}

// Objects that are each other's parents go as others do: whichever comes last, after one was put again, and
// in the next process.
func TestParentCycle(t *testing.T) {
	for _, n := range []int{2, 3, 7} {
		for name, again := range map[string]bool{"put": false, "put again": true} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				s, o := inFolder(t, shmstore.Options{Size: 16 << 10, QuarantineTTL: -1, Parent: parentInNote})
				rng := rand.New(rand.NewPCG(uint64(n), 1))
				key := func(ring, i int) string { return fmt.Sprint("ring ", ring, " ", i%n) }
				rings := func(from, to int) (keys []string) {
					for ring := from; ring < to; ring++ {
						order := rng.Perm(n)
						for _, i := range order {
							require.NoError(t, grow(t, s, key(ring, i), key(ring, i+1), 100))
							keys = append(keys, key(ring, i))
						}
						for _, i := range order[:n/2] {
							if again && s.Remove(key(ring, i)) {
								require.NoError(t, grow(t, s, key(ring, i), key(ring, i+1), 100))
							}
						}
					}
					return keys
				}
				gone := func(what string, keys []string) {
					t.Helper()
					for i := range 400 {
						require.NoError(t, grow(t, s, fmt.Sprint(what, i), "", 100))
					}
					require.Empty(t, which(s, keys...))
				}
				// Two that are reserved together, and committed one after the other.
				r := begin(t, s, "both")
				a, err := r.Reserve("a", 100, shmstore.PutOptions{Note: []byte("b")})
				require.NoError(t, err)
				b, err := r.Reserve("b", 100, shmstore.PutOptions{Note: []byte("a")})
				require.NoError(t, err)
				for _, res := range []*shmstore.Reservation{a, b} {
					_, err = res.Commit(0)
					require.NoError(t, err)
				}
				r.Rollback()
				gone("x", append(rings(0, 100/n), "a", "b"))

				keys := rings(200, 200+60/n)
				require.NoError(t, s.Yield())
				s, _, err = shmstore.Adopt(o)
				require.NoError(t, err)
				ends(t, s)
				require.NotEmpty(t, which(s, keys...))
				gone("y", keys)
			})
		}
	}
}
