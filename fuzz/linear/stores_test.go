package linear_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/linear"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// TestStoresAreLinearizable: put, look-up with a read through another mapping or by another process, and
// remove of a key take effect one after the other, whatever goroutines do.
func TestStoresAreLinearizable(t *testing.T) {
	exact, evicts := linear.Store(linear.StoreOptions{}), linear.Store(linear.StoreOptions{Evicts: true})
	for _, s := range []system{
		{"pool", []porcupine.Model{exact}, objects(true, 1<<20, here)},
		{"fifo", []porcupine.Model{exact}, objects(false, 1<<20, here)},
		{"pool, readers are processes", []porcupine.Model{exact}, objects(true, 1<<20, elsewhere)},
		{"fifo, readers are processes", []porcupine.Model{exact}, objects(false, 1<<20, elsewhere)},
		{"pool that evicts", []porcupine.Model{evicts}, objects(true, 2000, here)},
		{"shmstore", []porcupine.Model{exact}, payloads(1 << 20)},
		{"shmstore that evicts", []porcupine.Model{evicts}, payloads(1000)},
	} {
		t.Run(s.name, func(t *testing.T) { s.test(t) })
	}
}

var values, requests atomic.Uint64

func requestID() string { return fmt.Sprint("request ", requests.Add(1)) }

// draw returns a call for one of a few keys.
func draw(rng *rand.Rand) linear.StoreCall {
	c := linear.StoreCall{Op: []string{linear.Put, linear.Get, linear.Get, linear.Remove}[rng.IntN(4)],
		Key: fmt.Sprint("key ", rng.IntN(3))}
	if c.Op == linear.Put {
		c.Value = values.Add(1)
	}
	if rng.IntN(12) == 0 {
		c = linear.StoreCall{Op: linear.Clear}
	}
	return c
}

// putResult is the result of a put that returned err. No room is a put that did nothing and saw nothing.
func putResult(err error) (any, error) {
	exists := (*shmstore.KeyError)(nil)
	switch {
	case errors.As(err, &exists) && errors.Is(err, shmstore.ErrKeyExists):
		return linear.StoreResult{Busy: exists.Reserved}, nil
	case errors.Is(err, shmring.ErrFull):
		return linear.StoreResult{Busy: true}, nil
	}
	return linear.StoreResult{Done: true}, err
}

// clearResult is the result of a Clear that returned err. It is refused while requests use something.
func clearResult(err error) (any, error) {
	if errors.Is(err, segment.ErrBusy) {
		return linear.StoreResult{Busy: true}, nil
	}
	return linear.StoreResult{Done: true}, err
}

// valueReader reads the value of an object through another mapping.
type valueReader interface {
	value(key string, h serde.Address) (uint64, error)
}

// objects starts a store of objects with a reader for each client.
func objects(pool bool, size int, reader func(t *scope, o objstore.ReaderOptions,
	name string) valueReader) func(*scope) (func(int) perform, func()) {
	return func(t *scope) (func(int) perform, func()) {
		dir := t.dir
		o := objstore.Options{Name: fmt.Sprintf("s-%d", rand.Uint64()), Dir: dir, RingSize: size, Readers: 1,
			MaxObjectSize: 1 << 10}
		var store objstore.Store
		var err error
		if pool {
			store, err = objstore.CreatePool(o)
		} else {
			store, err = objstore.CreateFIFO(o)
		}
		require.NoError(t, err)
		t.atEnd(func() { _ = store.Abandon() })
		ro := objstore.ReaderOptions{Dir: dir, RingSize: size, Readers: 1}
		var readers []valueReader
		client := func(int) perform {
			r := reader(t, ro, o.Name)
			readers = append(readers, r)
			return func(rng *rand.Rand, do func(any, func() (any, error)) error) error {
				c := draw(rng)
				return do(c, func() (any, error) { return ask(store, r, c) })
			}
		}
		return client, func() {
			for _, r := range readers {
				if c, ok := r.(interface{ Close() error }); ok {
					require.NoError(t, c.Close())
				}
			}
			require.NoError(t, store.CheckStructure())
			require.NoError(t, store.Abandon())
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
}

func ask(store objstore.Store, reader valueReader, c linear.StoreCall) (any, error) {
	switch c.Op {
	case linear.Clear:
		return clearResult(store.Clear())
	case linear.Remove:
		return linear.StoreResult{Done: store.Remove(c.Key)}, nil
	}
	req, err := store.Begin(requestID())
	if err != nil {
		return nil, err
	}
	defer req.Rollback()
	if c.Op == linear.Put {
		data := binary.LittleEndian.AppendUint64(make([]byte, 300), c.Value)
		_, err := req.Put(c.Key, &serde.Tensor{DType: "uint8", Shape: []int{len(data)}, Data: data},
			objstore.PutOptions{})
		return putResult(err)
	}
	h, err := req.Lookup(c.Key)
	if errors.Is(err, objstore.ErrNotFound) {
		return linear.StoreResult{}, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := reader.value(c.Key, h)
	return linear.StoreResult{Value: v}, err
}

// mapped is a reader in this process.
type mapped struct{ *objstore.Reader }

func here(t *scope, o objstore.ReaderOptions, name string) valueReader {
	r, err := objstore.Open(name, o)
	require.NoError(t, err)
	return mapped{r}
}

func (m mapped) value(key string, h serde.Address) (uint64, error) {
	v, err := m.Get(key, h)
	if err != nil {
		return 0, err
	}
	data := v.Value().(*serde.Tensor).Data
	return binary.LittleEndian.Uint64(data[300:]), errors.Join(v.Check(), v.Release())
}

// payloads starts a store of payloads with a reader.
func payloads(size int) func(*scope) (func(int) perform, func()) {
	return func(t *scope) (func(int) perform, func()) {
		o := shmstore.Options{Name: fmt.Sprintf("s-%d", rand.Uint64()), Dir: t.dir, Size: size}
		store, err := shmstore.Create(o)
		require.NoError(t, err)
		t.atEnd(func() { _ = store.Abandon() })
		reader, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
		require.NoError(t, err)
		t.atEnd(func() { _ = reader.Close() })
		client := func(int) perform {
			return func(rng *rand.Rand, do func(any, func() (any, error)) error) error {
				c := draw(rng)
				return do(c, func() (any, error) { return askPayload(store, reader, c) })
			}
		}
		return client, func() {
			require.NoError(t, reader.Close())
			require.NoError(t, store.CheckStructure())
			require.NoError(t, store.Abandon())
		}
	}
}

func askPayload(store *shmstore.Store, reader *shmstore.Reader, c linear.StoreCall) (any, error) {
	switch c.Op {
	case linear.Clear:
		return clearResult(store.Clear())
	case linear.Remove:
		return linear.StoreResult{Done: store.Remove(c.Key)}, nil
	}
	req, err := store.Begin(shmstore.RequestOptions{ID: requestID()})
	if err != nil {
		return nil, err
	}
	defer req.Rollback()
	if c.Op == linear.Put {
		_, err := req.Put(c.Key, binary.LittleEndian.AppendUint64(make([]byte, 300), c.Value), shmstore.PutOptions{})
		return putResult(err)
	}
	o, err := req.Lookup(c.Key, 1)
	if errors.Is(err, shmstore.ErrNotFound) {
		return linear.StoreResult{}, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := reader.Get(o.Handle())
	if err != nil {
		return nil, err
	}
	defer v.Release()
	return linear.StoreResult{Value: binary.LittleEndian.Uint64(v.Bytes()[300:])}, v.Check()
}
