package linear_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/linear"
)

var (
	minutes = flag.Float64("minutes", 0, "how long each system is tested; 0 is a quarter of a second")
	pages   = flag.String("pages", "", "folder for the pages of histories that fail; the folder of temporary files if empty")
)

const (
	clients = 5
	calls   = 40 // of each client in a history
)

// perform makes a random call and returns it with its result.
type perform func(rng *rand.Rand, do func(call any, f func() (any, error)) error) error

// system is what is tested: start returns the way to call it from each client, and check what is looked at in
// the end.
type system struct {
	name   string
	models []porcupine.Model
	start  func(s *scope) (client func(n int) perform, check func())
}

// scope is the test of one history. A test has many, so their cleanups can't wait for its end.
type scope struct {
	*testing.T
	dir   string // of the test
	later []func()
}

// atEnd declares what is called when the history was recorded, or the test failed.
func (s *scope) atEnd(f func()) { s.later = append(s.later, f) }

func (s *scope) end() {
	for i := len(s.later) - 1; i >= 0; i-- {
		s.later[i]()
	}
}

// test records histories of a system, each with a new one, until the time is over.
func (s system) test(t *testing.T) {
	duration := time.Second / 4
	if *minutes > 0 {
		duration = time.Duration(*minutes * float64(time.Minute))
	}
	histories, operations, dir := 0, 0, t.TempDir()
	for end := time.Now().Add(duration); histories == 0 || time.Now().Before(end); histories++ {
		h := s.record(t, dir)
		for _, m := range s.models {
			require.NoError(t, linear.Check(m, h, linear.Options{Dir: *pages}))
		}
		operations += len(h)
		require.Len(t, h, clients*calls)
	}
	t.Logf("%s: %d histories, %d operations, zero violations", s.name, histories, operations)
}

func (s system) record(t *testing.T, dir string) []porcupine.Operation {
	rec := linear.NewRecorder()
	sc := &scope{T: t, dir: dir}
	defer sc.end()
	client, check := s.start(sc)
	var group sync.WaitGroup
	errs := make([]error, clients)
	for n := range clients {
		c, p := rec.Client(), client(n)
		rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(n)))
		group.Go(func() {
			for range calls {
				if errs[n] = p(rng, c.Do); errs[n] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	check()
	return rec.History()
}

// TestBrokenSystemsAreFound: stores with a planted defect don't pass.
func TestBrokenSystemsAreFound(t *testing.T) {
	for name, forget := range map[string]bool{"a remove that comes later": true, "a correct one": false} {
		t.Run(name, func(t *testing.T) {
			found := false
			for range 200 {
				s := system{start: func(*scope) (func(int) perform, func()) {
					b := &mapStore{values: map[string]uint64{}, late: forget}
					return func(int) perform { return b.perform }, func() {}
				}}
				if err := linear.Check(linear.Store(linear.StoreOptions{}), s.record(t, ""),
					linear.Options{Dir: t.TempDir()}); err != nil {
					found = true
					break
				}
			}
			require.Equal(t, forget, found)
		})
	}
}

// mapStore is a store over a map. late makes Remove take effect with the next call only.
type mapStore struct {
	mu      sync.Mutex
	values  map[string]uint64
	late    bool
	pending string
	next    uint64
}

func (s *mapStore) perform(rng *rand.Rand, do func(any, func() (any, error)) error) error {
	c := linear.StoreCall{Op: []string{linear.Put, linear.Get, linear.Remove}[rng.IntN(3)],
		Key: fmt.Sprint(rng.IntN(2))}
	s.mu.Lock()
	s.next++
	c.Value = s.next
	s.mu.Unlock()
	return do(c, func() (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		is := s.values[c.Key]
		delete(s.values, s.pending)
		s.pending = ""
		switch c.Op {
		case linear.Put:
			if is == 0 {
				s.values[c.Key] = c.Value
			}
			return linear.StoreResult{Done: is == 0}, nil
		case linear.Remove:
			if s.late {
				s.pending = c.Key
			} else {
				delete(s.values, c.Key)
			}
			return linear.StoreResult{Done: is != 0}, nil
		}
		return linear.StoreResult{Value: is}, nil
	})
}
