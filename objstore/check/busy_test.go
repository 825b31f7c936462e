//go:build linux

package check_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
)

// TestBusyWriterIsNoFinding: a writer puts, evicts, clears, sets its state, detaches and
// adopts again, and readers come and go, while the segment is checked. Then a byte of one object
// is changed under the same load, and that is found, and nothing else.
func TestBusyWriterIsNoFinding(t *testing.T) {
	o := objstore.Options{
		Name: name, Dir: t.TempDir(), RingSize: ringSize, MaxObjectSize: 16 << 10, Readers: 1,
		MaxObjects: objects, ReaderSlots: slots, FullSums: true,
	}
	l := &left{t: t, dir: o.Dir}
	w, err := objstore.CreatePool(o)
	require.NoError(t, err)
	keep, err := w.Begin("keep")
	require.NoError(t, err)
	h, err := keep.Put("kept", image(2000, 9), objstore.PutOptions{})
	require.NoError(t, err)
	require.NoError(t, keep.Commit())

	var stop, settle atomic.Bool // settle: no leases end and nobody adopts any more
	settled := make(chan struct{})
	wait := settled
	var group sync.WaitGroup
	handles := make(chan serde.Address, 64)
	group.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := 0; !stop.Load(); i++ {
			key := fmt.Sprint("k", rng.IntN(40))
			n := rng.IntN(40)
			if settle.Load() {
				if settled != nil {
					close(settled)
					settled = nil
				}
				n = max(n, 3)
			}
			switch n {
			case 0:
				_ = w.Clear()
			case 1:
				assert.NoError(t, w.ResetReaders(1+rng.IntN(3))) // sets the state
			case 3:
				_, err := w.Evict(key)
				assert.NoError(t, err)
			case 2:
				keep.Finish()
				assert.NoError(t, w.Detach())
				if w, _, err = objstore.AdoptPool(o); !assert.NoError(t, err) {
					return
				}
			default:
				r, err := w.Begin(fmt.Sprint(i))
				if !assert.NoError(t, err) {
					return
				}
				if h, err := r.Put(key, image(1+rng.IntN(9000), 1), objstore.PutOptions{}); err == nil {
					select {
					case handles <- h:
					default:
					}
				} else if !errors.Is(err, objstore.ErrFull) && !errors.Is(err, objstore.ErrKeyExists) {
					assert.NoError(t, err)
				}
				assert.NoError(t, r.Commit())
				r.Finish()
			}
		}
	})
	group.Go(func() {
		for !stop.Load() {
			r, err := objstore.Open(name, objstore.ReaderOptions{Dir: o.Dir, RingSize: ringSize, Readers: 1, SidecarLock: true})
			if !assert.NoError(t, err) {
				return
			}
			for range 20 {
				select {
				case h := <-handles:
					if v, err := r.Get("", h); err == nil {
						_ = v.Release()
					}
				default:
				}
			}
			assert.NoError(t, r.Close())
		}
	})
	defer func() {
		stop.Store(true)
		group.Wait()
		require.NoError(t, w.Abandon())
	}()

	chunks, busy := 0, 0
	for range 1500 {
		r := l.check(check.Options{Patience: time.Minute})
		require.Empty(t, r.Findings)
		chunks += r.Chunks
		busy += r.Busy
	}
	t.Logf("%d chunks were checked, %d came and went too fast", chunks, busy)
	require.Greater(t, chunks, 1500)

	settle.Store(true) // an adopter would drop the damaged object
	<-wait
	for { // until the writer has it again, with a lease
		r, err := w.Begin("damaged")
		require.NoError(t, err)
		if h, err = r.Put("damaged", image(2000, 9), objstore.PutOptions{}); err == nil {
			require.NoError(t, r.Commit())
			break
		}
		r.Rollback()
	}
	file, err := os.OpenFile(l.path(""), os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	at := int64(32 + h.Address)
	var header [8]byte
	_, err = file.ReadAt(header[:], at)
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{1}, at+int64(binary.LittleEndian.Uint32(header[4:]))-5)
	require.NoError(t, err)
	for range 50 {
		r := l.check(check.Options{})
		require.Len(t, r.Findings, 1)
		require.Equal(t, at+8, r.Findings[0].Offset)
		require.Contains(t, r.Findings[0].What, fmt.Sprintf("id %d: checksum of the payload", h.ID))
	}
}
