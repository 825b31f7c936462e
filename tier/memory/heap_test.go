//go:build linux

package memory

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// heapInUse returns the bytes of the heap that are in use.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHeapOfChunks: a chunk of KV, whose key, parent and space are as LMCache's server has them, takes no more of the
// heap than it did. Maps are as empty as they get with this number of chunks.
func TestHeapOfChunks(t *testing.T) {
	const chunks, prompt = 1 << 15, 64
	l := open(t, Options{Name: "level", Dir: t.TempDir(), Size: chunks * 512, MaxObjects: chunks + 1, MaxPins: 2 * prompt})
	x := leaseOf(t, l, tier.LeaseOptions{ID: "x"})
	defer x.Release()
	before := heapInUse()
	objects, keys := make([]tier.Object, prompt), make([]tier.Key, prompt)
	for i := range chunks {
		at := i % prompt
		o := tier.Object{Key: tier.Key{Space: "kv.Qwen3-8B.worker0of2.group0.54998c34ef5ba11bc332b0a8cf866294"}, Cost: time.Millisecond, Size: 100}
		if o.Name = fmt.Sprintf("%064x", i); at > 0 {
			o.Parent = objects[at-1].Name
		}
		objects[at], keys[at] = o, o.Key
		if at == prompt-1 {
			requirePlaced(t, x.Reserve(objects))
			requireNone(t, x.Commit(keys))
			x.Unpin(keys)
		}
	}
	require.EqualValues(t, chunks, l.Usage().Objects)
	each := (heapInUse() - before) / chunks
	t.Logf("%d bytes of the heap for each chunk", each)
	require.Less(t, each, int64(540))
	runtime.KeepAlive(l)
}

// TestHeapOfLongTexts: the longest texts of objects do not take as much memory on the heap as the objects
// take in the segment.
func TestHeapOfLongTexts(t *testing.T) {
	const size = 32 << 20
	l := open(t, Options{Name: "level", Dir: t.TempDir(), Size: size})
	before := heapInUse()
	for i := range size / (8 << 10) {
		require.NoError(t, put(l, tier.Object{
			Key: tier.Key{Space: "s", Name: fmt.Sprint(i, strings.Repeat("x", 1000))}, Parent: fmt.Sprint("p", strings.Repeat("p", 1000)),
			Tenant: strings.Repeat("t", 255), Note: []byte(fmt.Sprint(i, strings.Repeat("n", 4000))),
		}))
	}
	u, took := l.Usage(), heapInUse()-before
	t.Logf("%d objects: %d bytes of the heap", u.Objects, took)
	require.Less(t, took, int64(size/4))
	require.Greater(t, u.Objects, int64(400))
	require.Positive(t, u.Evicted)
}
