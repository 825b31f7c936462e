package explore_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/ringcache/ringcache/fuzz/explore"
	"github.com/ringcache/ringcache/internal/failpoint"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// countLock is the readers' lock of objstore for one process of an exploration.
type countLock struct {
	p    *explore.Process
	held *explore.Var[bool]
}

func (l *countLock) Lock(context.Context) error {
	l.p.Wait(func() bool { return !l.held.Get() }, "take the readers' lock")
	l.held.Set(true)
	return nil
}

func (l *countLock) Unlock() error {
	l.held.Set(false)
	return nil
}

// tensor is a value of 300 bytes b.
func tensor(b byte) *serde.Tensor {
	return &serde.Tensor{DType: "uint8", Shape: []int{300}, Data: bytes.Repeat([]byte{b}, 300)}
}

// sharedImage declares a real store with room for one object, real readers, and requests for one
// image that is new in the first of them. Steps are the readers' lock, and each load and store of
// the object's count, and with -long of its id.
func sharedImage(pool bool, version string, readers, requests, children int) func(r *explore.Run) {
	return func(r *explore.Run) {
		g := must(pycompat.Lookup(version))
		so := segment.Options{RingSize: 640, DataOffset: g.DataOffset}
		own := so
		if pool {
			own.Sidecar = &segment.SidecarOptions{Pool: true, Format: g.Version, Readers: readers, Objects: 4, Slots: 1}
		}
		memory := make([]byte, so.RingSize+so.DataOffset)
		seg := must(segment.Private(memory, own))
		o := objstore.Options{Segment: seg, RingSize: so.RingSize, Readers: readers, Generation: g}
		var store objstore.Store
		if pool {
			store = must(objstore.CreatePool(o))
		} else {
			store = must(objstore.CreateFIFO(o))
		}
		r.Cleanup(func() { _ = store.Abandon() })
		copy(seg.Secret(), bytes.Repeat([]byte{7}, g.DataOffset))

		held := explore.NewVar(r, "locked", false)
		place := -1 // of the object; before, nothing is a step
		word := func(at int) []byte { return memory[place+at : place+at+4] }
		mem.Watch(func(a mem.Access, w []byte) {
			off, ok := mem.Offset(memory, mem.Addr(w))
			if !ok || place < 0 {
				return
			}
			switch {
			case off == place && *long:
				r.Access(string(a) + " id")
			case off == place+8:
				r.Access(string(a) + " R")
			default:
				return
			}
			if a == mem.Loads {
				r.Saw(value(w))
			}
		})
		r.Cleanup(func() { mem.Watch(nil) })
		r.State(func() string {
			if place < 0 {
				return ""
			}
			return fmt.Sprintf("id=%s R=%s", value(word(0)), value(word(8)))
		})

		var handles []serde.Address // these depend on where the processes stand
		answers := make([]int, requests)
		r.Process("writer", func(p *explore.Process) {
			var open []objstore.Request
			for k := range requests {
				p.Access(fmt.Sprintf("begin request %d", k+1))
				req := must(store.Begin(fmt.Sprint("request ", k+1)))
				var h serde.Address
				if k == 0 {
					h = must(req.Put("image", tensor('a'), objstore.PutOptions{}))
					place = g.DataOffset + int(h.Address)
				} else {
					h = must(req.Lookup("image"))
				}
				if err := req.Commit(); err != nil {
					panic(err)
				}
				p.Access(fmt.Sprintf("send request %d", k+1))
				handles = append(handles, h)
				open = append(open, req)
			}
			for k, req := range open {
				p.Wait(func() bool {
					return answers[k] == readers
				}, "finish request %d: every reader has answered", k+1)
				req.Finish()
			}
			p.Access("put another object, which needs the room")
			req := must(store.Begin("another"))
			defer req.Rollback()
			if _, err := req.Put("another", tensor('b'), objstore.PutOptions{}); err != nil {
				p.Failf("every handle was read and every request has ended, but there is no room: %v", err)
			}
		})
		for i := range readers {
			lock := &countLock{held: held}
			other := must(segment.Private(memory, so))
			reader := must(objstore.Open("", objstore.ReaderOptions{Segment: other, RingSize: so.RingSize,
				Readers: readers, Generation: g, Lock: lock}))
			lock.p = r.Process(fmt.Sprintf("reader %c", 'A'+i), func(p *explore.Process) {
				for k := range requests {
					p.Wait(func() bool { return len(handles) > k }, "receive request %d", k+1)
					for range children {
						if err := read(reader, handles[k]); err != nil {
							p.Failf("%v", err)
						}
					}
					answers[k]++
				}
			})
		}
		r.AtEnd("structure", "the store is damaged", store.CheckStructure)
	}
}

// read is what a worker does with an item.
func read(reader *objstore.Reader, h serde.Address) error {
	if err := reader.Touch(context.Background(), "image", h); err != nil {
		return err
	}
	v, err := reader.Get("image", h)
	if err != nil {
		return err
	}
	if got := v.Value().(*serde.Tensor).Data; !bytes.Equal(got, tensor('a').Data) {
		return fmt.Errorf("read %q", got[:1])
	}
	return v.Release()
}

// TestStoresOfTwoRequestsForOneImage: the real FIFO drifts as vLLM does with the workers of 0.12 to
// 0.31, since it counts as they do; it is exact from 0.32 on. A pool does not depend on the counts.
func TestStoresOfTwoRequestsForOneImage(t *testing.T) {
	failpoint.Need(t)
	for _, c := range []struct {
		pool               bool
		version            string
		requests, children int
		long               bool
		failure            string
	}{
		{false, "0.11.0", 2, 1, false, ""},
		{false, "0.31.0", 2, 1, false, "assertion"},
		{false, "0.33.0", 2, 1, false, ""},
		{true, "0.31.0", 2, 1, true, ""},
		{true, "0.33.0", 2, 1, true, ""},
		{true, "0.33.0", 1, 2, false, ""},
	} {
		name := "FIFO"
		if c.pool {
			name = "Pool"
		}
		t.Run(fmt.Sprintf("%s, %s, %d requests, %d reads of each", name, c.version, c.requests, c.children),
			func(t *testing.T) {
				if c.long && !*long {
					t.Skip("takes half a minute; ask for it with -long")
				}
				res := explore.Explore(explore.Options{}, sharedImage(c.pool, c.version, 2, c.requests, c.children))
				if c.failure == "" {
					clean(t, res)
				} else {
					found(t, res, c.failure)
				}
			})
	}
}
