package shmstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/evict"
	"github.com/ringcache/ringcache/internal/invariants"
)

// newTestStore returns a store with an object of a tenant, which a request has.
func newTestStore(t *testing.T) (*Store, *Request, *Object) {
	t.Helper()
	s, err := Create(Options{Name: "s", Dir: t.TempDir(), Size: 64 << 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Abandon()) })
	r, err := s.Begin(RequestOptions{ID: "r"})
	require.NoError(t, err)
	o, err := r.Put("k", make([]byte, 100), PutOptions{Tenant: "t"})
	require.NoError(t, err)
	require.NoError(t, s.CheckStructure())
	return s, r, o
}

func held(s *Store, o *Object) error    { return s.lifetime.checkHeld(o) }
func classed(s *Store, o *Object) error { return s.space.checkClass(o) }
func counted(s *Store, o *Object) error { return s.space.checkBytes(o) }
func freed(s *Store, o *Object) error   { return s.space.checkFreed(o) }

// Every invariant can be broken, and its check reports it.
func TestInvariantsFind(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(s *Store, o *Object)
		check  func(s *Store, o *Object) error
		text   string
	}{
		"held":              {func(*Store, *Object) {}, held, ""},
		"a negative count":  {func(_ *Store, o *Object) { o.sent = -1 }, held, "1 leases, -1 of them sent"},
		"more sent":         {func(_ *Store, o *Object) { o.sent = 2 }, held, "1 leases, 2 of them sent"},
		"a lost lease":      {func(s *Store, _ *Object) { s.lifetime.leases-- }, held, "the store has 0"},
		"classed":           {func(*Store, *Object) {}, classed, ""},
		"negative bytes":    {func(s *Store, _ *Object) { s.space.bytes[classIdle] = -1 }, classed, "-1 bytes in class 6"},
		"more idle bytes":   {func(s *Store, _ *Object) { s.space.tenants["t"].idleBytes = 1 << 20 }, classed, `tenant "t" has`},
		"bytes":             {func(*Store, *Object) {}, counted, ""},
		"lost bytes":        {func(s *Store, _ *Object) { s.space.bytes[classLeased]-- }, counted, "objects take 191 bytes and chunks 192"},
		"freed and leased":  {func(*Store, *Object) {}, freed, "which has 1 leases"},
		"freed and pinned":  {func(_ *Store, o *Object) { free(o); o.pinned = true }, freed, "pinned: true"},
		"freed and aborted": {func(_ *Store, o *Object) { free(o); o.quarantined = true }, freed, "in quarantine: true"},
		"freed":             {func(_ *Store, o *Object) { free(o) }, freed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, o := newTestStore(t)
			was := *o
			defer func() { *o = was }()
			c.damage(s, o)
			err := c.check(s, o)
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
		})
	}
}

// free makes an object look as one that nobody has.
func free(o *Object) { o.leases, o.cached, o.entry, o.class = 0, evict.Entry{}, -1, classNone }

// Builds that check invariants do so at each change.
func TestStateChangesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(s *Store, o *Object)
		change func(s *Store, r *Request)
		text   string
	}{
		"a lease ends": {func(s *Store, _ *Object) { s.lifetime.leases = 0 }, func(_ *Store, r *Request) { r.Rollback() },
			`broken invariant: shmstore: key "k" has 0 leases, 0 of them sent; the store has -1`},
		"an object moves to another class": {func(s *Store, _ *Object) { s.space.bytes[classLeased] = 0 }, func(_ *Store, r *Request) { r.Rollback() },
			`broken invariant: shmstore: -192 bytes in class 2 after key "k" moved to 6`},
		"a chunk comes": {func(s *Store, _ *Object) { s.space.bytes[classLeased]++ }, func(_ *Store, r *Request) { _, _ = r.Reserve("l", 1, PutOptions{}) },
			`broken invariant: shmstore: objects take 321 bytes and chunks 320, after a change of key "l"`},
		"a chunk goes": {func(s *Store, _ *Object) { s.space.bytes[classLeased]++ }, func(s *Store, r *Request) { r.Rollback(); _, _ = s.Evict("k") },
			`broken invariant: shmstore: objects take 1 bytes and chunks 0, after a change of key "k"`},
	} {
		t.Run(name, func(t *testing.T) {
			s, r, o := newTestStore(t)
			c.damage(s, o)
			change := func() { c.change(s, r) }
			if !invariants.Enabled {
				require.NotPanics(t, change)
				return
			}
			require.PanicsWithError(t, c.text, change)
		})
	}
}
