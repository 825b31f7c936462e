package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/tier"
)

// model is what clients have, kept in another way than the registry does.
type model struct {
	there    map[string]bool
	reserved map[string]string // name of an object: session/lease
	pins     map[string]map[string]bool
	until    map[string]time.Time // by session/lease
	ends     map[string]time.Time // of reservations, of those whose time has passed
}

// passed takes the pins of leases whose time has passed, and later their reservations.
func (m *model) passed(now time.Time) {
	for id, at := range m.ends {
		if !now.Before(at) {
			m.drop(id)
		}
	}
	for id, at := range m.until {
		if !now.Before(at) {
			delete(m.until, id)
			delete(m.pins, id)
			m.ends[id] = now.Add(tier.WriteTime)
		}
	}
}

func (m *model) held(size map[string]int64) (n int64) {
	for _, pins := range m.pins {
		for name := range pins {
			n += size[name]
		}
	}
	for name := range m.reserved {
		n += size[name]
	}
	return n
}

func (m *model) drop(id string) {
	delete(m.pins, id)
	delete(m.until, id)
	delete(m.ends, id)
	for name, by := range m.reserved {
		if by == id {
			delete(m.reserved, name)
		}
	}
}

// TestRandomRequests: whatever clients do, each answer is what a model says, and the registry agrees
// with the store after each.
func TestRandomRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := ordinary
		limits.Held = 3000
		b := newBed(t, limits)
		m := &model{map[string]bool{}, map[string]string{}, map[string]map[string]bool{}, map[string]time.Time{}, map[string]time.Time{}}
		sizes := map[string]int64{"a": 0, "b": 700, "c": 1000, "d": 1000, "e": 2900, "f": 3001}
		names := slices.Sorted(maps.Keys(sizes))
		users := map[string]*Session{}
		join := func(session string) {
			users[session] = b.user(process.Unknown(), session)
		}
		sessions := []string{"session-1", "session-2"}
		for _, s := range sessions {
			join(s)
		}
		pick := func(t *rapid.T) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(t, "names")
		}
		at := func(t *rapid.T) (*Session, string, string) {
			s, l := rapid.SampledFrom(sessions).Draw(t, "session"), rapid.SampledFrom([]string{"l", "m"}).Draw(t, "lease")
			return users[s], l, s + "/" + l
		}
		heldBy := func(session string) (n int64) { // each is a process of its own
			one := &model{pins: map[string]map[string]bool{}, reserved: map[string]string{}}
			for id, pins := range m.pins {
				if id[:len(session)] == session {
					one.pins[id] = pins
				}
			}
			for name, id := range m.reserved {
				if id[:len(session)] == session {
					one.reserved[name] = id
				}
			}
			return one.held(sizes)
		}
		seconds := func(t *rapid.T) time.Duration {
			return time.Duration(rapid.SampledFrom([]int{0, 1, 20, 7200}).Draw(t, "seconds")) * time.Second
		}
		extend := func(id string, d time.Duration) {
			if d == 0 {
				d = limits.Ordinary
			}
			if at := b.clock().Add(min(d, limits.Longest)); m.until[id].Before(at) {
				m.until[id] = at.Add(slack)
			}
			delete(m.ends, id)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				require.NoError(t, b.registry.Check())
				require.Equal(t, m.held(sizes), b.registry.Counts().Held)
				for id := range m.until {
					if b.registry.find(id) == nil { // it had nothing
						delete(m.until, id)
					}
				}
				for id := range m.ends {
					if b.registry.find(id) == nil {
						delete(m.ends, id)
					}
				}
			},
			"pin": func(t *rapid.T) {
				u, l, id := at(t)
				wanted := pick(t)
				d := seconds(t)
				placed, err := u.Pin(l, keys(wanted...), d, false)
				require.NoError(t, err)
				for i, name := range wanted {
					session := id[:len("session-1")]
					switch {
					case m.reserved[name] != "":
						require.ErrorIs(t, placed[i].Err, tier.ErrPending)
					case !m.there[name]:
						require.ErrorIs(t, placed[i].Err, tier.ErrNotFound)
					case m.pins[id][name]:
						require.NoError(t, placed[i].Err)
					case heldBy(session)+sizes[name] > limits.Held:
						require.ErrorIs(t, placed[i].Err, tier.ErrFull)
					default:
						require.NoError(t, placed[i].Err)
						if m.pins[id] == nil {
							m.pins[id] = map[string]bool{}
						}
						m.pins[id][name] = true
					}
				}
				extend(id, d)
			},
			"reserve": func(t *rapid.T) {
				u, l, id := at(t)
				wanted := pick(t)
				var objects []tier.Object
				for _, name := range wanted {
					objects = append(objects, tier.Object{Key: key(name), Size: sizes[name]})
				}
				d := seconds(t)
				placed, err := u.Reserve(l, objects, d)
				require.NoError(t, err)
				for i, name := range wanted {
					err := placed[i].Err
					switch {
					case m.reserved[name] == id:
						require.NoError(t, err)
					case sizes[name] > limits.Held:
						require.ErrorIs(t, err, tier.ErrTooLarge)
					case heldBy(id[:len("session-1")])+sizes[name] > limits.Held:
						require.ErrorIs(t, err, tier.ErrFull)
					case m.reserved[name] != "":
						require.ErrorIs(t, err, tier.ErrPending)
					case m.there[name]:
						require.ErrorIs(t, err, tier.ErrExists)
					default:
						require.NoError(t, err)
						m.reserved[name] = id
					}
				}
				extend(id, d)
			},
			"commit": func(t *rapid.T) {
				u, l, id := at(t)
				wanted := pick(t)
				keep := rapid.Bool().Draw(t, "keep")
				was := b.registry.find(id) != nil
				errs, _, err := u.Commit(l, keys(wanted...), keep, 0)
				require.NoError(t, err)
				if keep && was {
					extend(id, 0)
				}
				for i, name := range wanted {
					pinned := false
					switch {
					case m.reserved[name] == id:
						require.NoError(t, errs[i])
						delete(m.reserved, name)
						m.there[name] = true
						pinned = keep
					case m.there[name] && !keep:
						require.NoError(t, errs[i])
					case m.there[name] && was && (m.pins[id][name] || heldBy(id[:len("session-1")])+sizes[name] <= limits.Held):
						require.NoError(t, errs[i])
						pinned = true
					default:
						require.ErrorIs(t, errs[i], tier.ErrEnded)
					}
					if pinned {
						if m.pins[id] == nil {
							m.pins[id] = map[string]bool{}
						}
						m.pins[id][name] = true
					}
				}
			},
			"abort": func(t *rapid.T) {
				u, l, id := at(t)
				wanted := pick(t)
				errs, err := u.Abort(l, keys(wanted...))
				require.NoError(t, err)
				for i, name := range wanted {
					if m.reserved[name] == id {
						require.NoError(t, errs[i])
						delete(m.reserved, name)
					} else {
						require.ErrorIs(t, errs[i], tier.ErrEnded)
					}
				}
			},
			"unpin": func(t *rapid.T) {
				u, l, id := at(t)
				wanted := pick(t)
				require.NoError(t, u.Unpin(l, keys(wanted...)))
				for _, name := range wanted {
					delete(m.pins[id], name)
				}
			},
			"release": func(t *rapid.T) {
				u, l, id := at(t)
				b.release(u, l, "nothing")
				m.drop(id)
			},
			"get": func(t *rapid.T) {
				u, l, id := at(t)
				found, err := u.Keys(l, "space")
				require.NoError(t, err)
				placed, err := u.Get(l, found)
				require.NoError(t, err)
				got := map[string]bool{}
				for i, k := range found {
					reserved := errors.Is(placed[i].Err, tier.ErrPending)
					require.True(t, reserved || placed[i].Err == nil)
					got[fmt.Sprint(k.Name, reserved)] = true
				}
				want := map[string]bool{}
				for name := range m.pins[id] {
					want[name+"false"] = true
				}
				for name, by := range m.reserved {
					if by == id {
						want[name+"true"] = true
					}
				}
				require.Equal(t, want, got)
			},
			"time": func(t *rapid.T) {
				b.pass(time.Duration(rapid.SampledFrom([]int{1, 15, 60, 300, 4000}).Draw(t, "passes")) * time.Second)
				m.passed(b.clock())
			},
			"reconnect": func(t *rapid.T) {
				s := rapid.SampledFrom(sessions).Draw(t, "session")
				if rapid.Bool().Draw(t, "leaves") {
					users[s].Leave()
				}
				join(s)
			},
			"restart": func(t *rapid.T) {
				b.reopen()
				grace := b.clock().Add(30 * time.Second)
				for id := range m.ends { // they have the grace time, too
					m.until[id] = grace
				}
				clear(m.ends)
				for id, at := range m.until {
					if at.Before(grace) {
						m.until[id] = grace
					}
				}
				comes := rapid.Bool().Draw(t, "in time")
				if !comes {
					b.pass(31 * time.Second)
					for _, s := range sessions {
						m.drop(s + "/l")
						m.drop(s + "/m")
					}
				}
				for _, s := range sessions {
					join(s)
				}
			},
		})
	})
}

// find returns a lease by its ID.
func (r *Registry) find(id string) *lease {
	for _, s := range r.all() {
		for _, l := range s.all() {
			if l.t.ID() == "test/"+id {
				return l
			}
		}
	}
	return nil
}
