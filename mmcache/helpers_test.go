package mmcache_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/serde"
)

func TestMain(m *testing.M) {
	status := goldentest.ReadOnlyTable(m).Run()
	if status == 0 {
		// goleak itself waits for less than a second, which a busy machine can take to
		// end what is about to end.
		err := goleak.Find()
		for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); err = goleak.Find() {
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			status = 1
		}
	}
	os.Exit(status)
}

var modes = []string{"none", "processor_only", "lru", "shm"}

// forEachMode runs a test in every mode.
func forEachMode(t *testing.T, o mmcache.Options, f func(t *testing.T, c mmcache.Cache)) {
	for _, m := range modes {
		t.Run(m, func(t *testing.T) {
			o := o
			o.Mode = m
			f(t, openCache(t, o))
		})
	}
}

// openCache opens a cache that is validated and closed when the test ends. A
// segment lies in a folder of the test.
func openCache(t testing.TB, o mmcache.Options) mmcache.Cache {
	t.Helper()
	if o.Mode == "shm" {
		o.Shared.Dir, o.Shared.Name = segmentDir(t), fmt.Sprintf("mm%d", os.Getpid())
		o.Shared.Readers = max(o.Shared.Readers, 1)
	}
	c, err := mmcache.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.CheckStructure())
		require.Zero(t, c.Stats().InFlight, "memory is still charged to requests that ended")
		require.Empty(t, c.Holders())
		require.NoError(t, c.Close())
		require.NoError(t, c.Close())
	})
	return c
}

// openShared is openCache for mode shm.
func openShared(t testing.TB, o mmcache.Options) *mmcache.Shared {
	t.Helper()
	o.Mode = "shm"
	return openCache(t, o).(*mmcache.Shared)
}

// openMirrored is openCache for mode lru.
func openMirrored(t testing.TB, o mmcache.Options) *mmcache.Mirrored {
	t.Helper()
	o.Mode = "lru"
	return openCache(t, o).(*mmcache.Mirrored)
}

// passFence passes a fence where there is one.
func passFence(c mmcache.Cache) {
	if s, ok := c.(*mmcache.Shared); ok {
		s.Fence().Passed()
	}
}

var ids atomic.Int64

// nextID is the id of a request; no two that are open may have the same.
func nextID() string { return fmt.Sprint("request-", ids.Add(1)) }

var dirs sync.Map // of tests, by name

// segmentDir is the folder that stands for /dev/shm in a test.
func segmentDir(t testing.TB) string {
	if d, ok := dirs.Load(t.Name()); ok {
		return d.(string)
	}
	d := t.TempDir()
	dirs.Store(t.Name(), d)
	t.Cleanup(func() { dirs.Delete(t.Name()) }) // the test may run again
	return d
}

// content is what the item of a key must hold, n bytes.
func content(key string, n int) []byte {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	b := binary.LittleEndian.AppendUint64(nil, h.Sum64())
	return bytes.Repeat(b, n/8+1)[:n]
}

// layout is an item of n bytes, without data.
func layout(n int) *serde.Item {
	return &serde.Item{Modality: "image", Elems: []serde.Elem{{
		Key: "pixel_values", Data: &serde.Tensor{DType: "uint8", Shape: []int{n}},
	}}}
}

// produceItem fills an item of n bytes in place; its updates are its key.
func produceItem(key string, n int) mmcache.Producer {
	return func(_ context.Context, b *mmcache.Builder) error {
		if err := b.Layout(layout(n), []byte(key)); err != nil {
			return err
		}
		copy(b.Tensor("pixel_values"), content(key, n))
		return nil
	}
}

// requireInvalid requires a refusal that names what was wrong.
func requireInvalid(t testing.TB, err error, what string) {
	t.Helper()
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, what)
}

func mustNotProduce(t testing.TB) mmcache.Producer {
	return func(context.Context, *mmcache.Builder) error {
		t.Error("a cached item was made again")
		return fmt.Errorf("made again")
	}
}

func want(n int, keys ...string) (ws []mmcache.Want) {
	for _, k := range keys {
		ws = append(ws, mmcache.Want{Key: k, Bytes: int64(n + len(k)), Modality: "image"})
	}
	return ws
}

// engine stands for the other end of mode lru: it keeps what it is sent.
type engine struct {
	t        testing.TB
	receiver *lrusync.Receiver[*serde.Item]
}

func newEngine(t testing.TB, capacity float64) *engine {
	r, err := lrusync.NewReceiver[*serde.Item](lrusync.Options{Capacity: capacity})
	require.NoError(t, err)
	return &engine{t, r}
}

// take is the send function of a request; it returns what the engine lacks. Any
// goroutine may call it.
func (e *engine) take(b mmcache.Batch) lrusync.Result[*serde.Item] {
	fs := make([]lrusync.Feature[*serde.Item], len(b.Items))
	for i, w := range b.Items {
		fs[i] = lrusync.Feature[*serde.Item]{Key: w.Key}
		if w.Item() != nil {
			size, err := lrusync.ItemSize(w.Item(), lrusync.Python{})
			assert.NoError(e.t, err)
			fs[i].HasData, fs[i].Value, fs[i].Size = true, w.Item(), size
		}
	}
	res, err := e.receiver.Receive(b.Envelope, fs)
	assert.NoError(e.t, err)
	return res
}

// What goes on the wire in the place of an item.
const (
	inData    = "the item"
	inAddress = "its address"
	omitted   = "nothing"
)

func form(w mmcache.Wire) string {
	switch {
	case w.Handle != nil:
		return inAddress
	case w.Item() != nil:
		return inData
	}
	return omitted
}

// assertContent compares the bytes of an item with those of its key. Any goroutine may
// call it.
func assertContent(t assert.TestingT, key string, it *serde.Item) {
	e, ok := it.Lookup("pixel_values")
	if !assert.True(t, ok, "item %q has no pixel_values", key) {
		return
	}
	b := e.Data.(*serde.Tensor).Data
	assert.True(t, bytes.Equal(content(key, len(b)), b), "item %q has another's bytes", key)
}
