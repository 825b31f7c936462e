package linear

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmstore"
)

// call is what a goroutine asks of one key.
type call struct {
	op    string // put, get or remove
	key   int
	value uint64 // of put
}

// result is what it got.
type result struct {
	value uint64 // of get; 0 is absent
	done  bool   // put has put, remove has removed
	wrote bool   // put found that another was just writing: it did nothing, and saw nothing
}

// register is a key: a put of an absent one, a get, and a remove take effect at one
// moment between call and return.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		keys := map[int][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(call).key
			keys[k] = append(keys[k], o)
		}
		var all [][]porcupine.Operation
		for _, k := range keys {
			all = append(all, k)
		}
		return all
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		is, c, r := state.(uint64), input.(call), output.(result)
		switch c.op {
		case "get":
			return r.value == is, is
		case "remove":
			return r.done == (is != 0), uint64(0)
		}
		if r.wrote {
			return true, is
		}
		if r.done {
			return is == 0, c.value
		}
		return is != 0, is
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// user is a goroutine with a store and a reader of another mapping.
type user struct {
	store  objstore.Store
	reader *objstore.Reader
	name   string
	n      int
}

func key(k int) string { return fmt.Sprint("key ", k) }

func (u *user) do(c call) (r result, err error) {
	if c.op == "remove" {
		return result{done: u.store.Remove(key(c.key))}, nil
	}
	u.n++
	req, err := u.store.Begin(fmt.Sprint(u.name, "/", u.n))
	if err != nil {
		return r, err
	}
	defer req.Rollback()
	if c.op == "put" {
		data := binary.LittleEndian.AppendUint64(make([]byte, 300), c.value)
		_, err := req.Put(key(c.key), &serde.Tensor{DType: "uint8", Shape: []int{len(data)}, Data: data}, objstore.PutOptions{})
		if exists := (*shmstore.KeyError)(nil); errors.As(err, &exists) && errors.Is(err, objstore.ErrKeyExists) {
			return result{wrote: exists.Reserved}, nil
		}
		return result{done: true}, err
	}
	h, err := req.Lookup(key(c.key))
	if errors.Is(err, objstore.ErrNotFound) {
		return result{}, nil
	}
	if err != nil {
		return r, err
	}
	v, err := u.reader.Get(key(c.key), h)
	if err != nil {
		return r, err
	}
	data := v.Value().(*serde.Tensor).Data
	r.value = binary.LittleEndian.Uint64(data[300:])
	return r, errors.Join(v.Check(), v.Release())
}

// record lets goroutines work on a few keys, and returns what they did.
func record(t *testing.T, fifo bool) []porcupine.Operation {
	t.Helper()
	o := objstore.Options{Name: fmt.Sprintf("s-%d", rand.Uint64()), Dir: t.TempDir(), RingSize: 16 << 20, Readers: 1, MaxObjectSize: 1 << 10}
	var store objstore.Store
	var err error
	if fifo {
		store, err = objstore.CreateFIFO(o)
	} else {
		store, err = objstore.CreatePool(o)
	}
	require.NoError(t, err)
	defer func() {
		require.NoError(t, store.CheckStructure())
		require.NoError(t, store.Abandon())
		left, err := os.ReadDir(o.Dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}()
	reader, err := objstore.Open(o.Name, objstore.ReaderOptions{Dir: o.Dir, RingSize: o.RingSize, Readers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	var all []porcupine.Operation
	var mu sync.Mutex
	var values atomic.Uint64
	var users sync.WaitGroup
	begin := time.Now()
	for g := range 6 {
		users.Go(func() {
			u := &user{store: store, reader: reader, name: fmt.Sprint(g)}
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(g)))
			for range 400 {
				c := call{op: []string{"put", "get", "get", "remove"}[rng.IntN(4)], key: rng.IntN(4)}
				if c.op == "put" {
					c.value = values.Add(1)
				}
				called := time.Since(begin)
				r, err := u.do(c)
				returned := time.Since(begin)
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				all = append(all, porcupine.Operation{ClientId: g, Input: c, Call: int64(called), Output: r, Return: int64(returned)})
				mu.Unlock()
			}
		})
	}
	users.Wait()
	return all
}

// TestStoresAreLinearizable: put, look-up with a read through another mapping, and remove
// of a key take effect one after the other, whatever goroutines do.
func TestStoresAreLinearizable(t *testing.T) {
	for name, fifo := range map[string]bool{"pool": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			history := record(t, fifo)
			seen := map[string]int{}
			for _, o := range history {
				c, r := o.Input.(call), o.Output.(result)
				seen[fmt.Sprint(c.op, " ", r.done || r.value != 0)]++
			}
			t.Log(seen)
			for _, what := range []string{"put true", "put false", "get true", "get false", "remove true", "remove false"} {
				require.NotZero(t, seen[what], what)
			}
			require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(register, history, 5*time.Minute))

			// The check can fail: a read of what was never there at that time.
			i := slices.IndexFunc(history, func(o porcupine.Operation) bool { return o.Output.(result).value != 0 })
			wrong := history[i].Output.(result)
			wrong.value += 1_000_000
			history[i].Output = wrong
			require.Equal(t, porcupine.Illegal, porcupine.CheckOperationsTimeout(register, history, 5*time.Minute))
		})
	}
}
