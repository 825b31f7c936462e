package shmstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
)

// In a store of which a search sees a small part, spares are leased, pinned, removed, evicted, put
// into quarantine and looked at before their turn, with limits of bytes, of objects and of tenants.
func TestSparesUnderRandomUse(t *testing.T) {
	const objects, size = 1200, 300
	for _, limit := range []string{"bytes", "objects"} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			o := Options{Name: "s", Dir: t.TempDir(), Size: objects * 448, MaxObjects: 2 * objects, QuarantineTTL: -1, Quotas: map[string]int64{"small": 20 * 448}}
			if limit == "objects" {
				o.Size, o.MaxObjects = 2*o.Size, objects
			}
			s, err := Create(o)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Abandon()) })
			r, err := Open(o.Name, ReaderOptions{Dir: o.Dir})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.Close()) })

			rng := rand.New(rand.NewPCG(7, 7))
			var open, sent []*Request
			views := map[*View]byte{}
			taken, n := 0, 0
			anyKey := func() string { return fmt.Sprint(max(0, n-rng.IntN(2*objects))) }
			for i := range 30_000 {
				switch rng.IntN(20) {
				default:
					q, err := s.Begin(RequestOptions{ID: fmt.Sprint(i)})
					require.NoError(t, err)
					n++
					b := make([]byte, size)
					b[0], b[size-1] = byte(n), byte(n)
					po := PutOptions{}
					if rng.IntN(20) == 0 {
						po.Tenant = "small"
					}
					before := s.space.spares.n + s.space.entries.n
					if _, err := q.Put(fmt.Sprint(n), b, po); err != nil {
						require.ErrorIs(t, err, shmring.ErrFull)
					}
					if s.space.spares.n+s.space.entries.n < before {
						taken++
					}
					if rng.IntN(10) == 0 {
						open = append(open, q)
					} else {
						require.NoError(t, q.Commit())
						q.Finish()
					}
				case 0, 1:
					q, err := s.Begin(RequestOptions{ID: fmt.Sprint(i)})
					require.NoError(t, err)
					_, _ = q.Lookup(anyKey(), 1)
					open = append(open, q)
				case 2, 3:
					if len(open) > 20 {
						at := rng.IntN(len(open))
						q := open[at]
						open = append(open[:at], open[at+1:]...)
						if rng.IntN(2) == 0 {
							q.Rollback()
							break
						}
						require.NoError(t, q.Commit())
						sent = append(sent, q)
					}
				case 4:
					if len(sent) > 20 {
						q := sent[0]
						sent = sent[1:]
						if rng.IntN(2) == 0 {
							q.Abort()
						} else {
							q.Finish()
						}
					}
				case 5:
					s.Remove(anyKey())
				case 6:
					_, _ = s.Evict(anyKey())
				case 7:
					_, _ = s.Pin(anyKey())
					if rng.IntN(20) == 0 {
						s.Unpin()
					}
				case 8, 9:
					if o, err := s.Find(anyKey()); err == nil {
						v, err := r.Get(o.Handle())
						require.NoError(t, err)
						views[v] = v.Bytes()[0]
					}
					for v, b := range views {
						require.NoError(t, v.Check())
						require.Equal(t, b, v.Bytes()[size-1], "the bytes of another object")
						if len(views) > 20 {
							v.Release()
							delete(views, v)
						}
						break
					}
				case 10:
					if rng.IntN(10) == 0 {
						s.Fence().Passed()
					}
				}
				if i%500 == 0 {
					require.NoError(t, s.CheckStructure())
				}
			}
			require.NoError(t, s.CheckStructure())
			t.Logf("%d puts took a spare", taken)
			require.Greater(t, taken, 500)
			for v := range views {
				v.Release()
			}
			for _, q := range append(open, sent...) {
				q.Rollback()
				q.Finish()
			}
		})
	}
}
