package objstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// jobSizes are those of the jobs' items in bytes.
var jobSizes = []int{4 << 10, 64 << 10, 1 << 20, 24 << 20}

// qwen returns what Qwen2-VL makes of an image, with n bytes of pixels or a little less.
func qwen(n int) *serde.Item {
	const columns = 1176
	rows := n / (2 * columns)
	pixels := &serde.Tensor{DType: "bfloat16", Shape: []int{rows, columns}, Data: make([]byte, rows*columns*2)}
	for i := range pixels.Data {
		pixels.Data[i] = byte(i*7 + i>>8)
	}
	grid := &serde.Tensor{DType: "int64", Shape: []int{3}, Data: make([]byte, 24)}
	for i, d := range []int{1, 16, rows / 16} {
		binary.LittleEndian.PutUint64(grid.Data[8*i:], uint64(d))
	}
	return &serde.Item{Elems: []serde.Elem{
		{Key: "pixel_values", Data: pixels, Field: serde.FlatFromSizes(rows)},
		{Key: "image_grid_thw", Data: grid, Field: serde.Field{Kind: serde.Batched, KeepOnCPU: true}},
	}}
}

// jobKey returns a key of 64 hexadecimal digits, as package mmhash makes them.
func jobKey(i int) string {
	s := strconv.FormatUint(uint64(i)*0x9E3779B97F4A7C15, 16)
	return fmt.Sprintf("%064s", s)
}

// jobKeys are keys that were made before a benchmark begins.
func jobKeys() []string {
	keys := make([]string, 1<<18)
	for i := range keys {
		keys[i] = jobKey(i)
	}
	return keys
}

// jobs runs a benchmark for every size in a store of each kind.
func jobs(b *testing.B, run func(b *testing.B, w *writer, size int)) {
	for _, k := range kinds {
		for _, size := range jobSizes {
			b.Run(fmt.Sprintf("%v/%dKiB", k, size>>10), func(b *testing.B) {
				run(b, jobStore(b, k, size), size)
			})
		}
	}
}

// jobStore makes a store in a real segment, which is small enough for a processor's
// cache where the objects are.
func jobStore(b *testing.B, k kind, size int) *writer {
	w, err := k.create(Options{
		Name: fmt.Sprintf("ringcache-jobs-%d", os.Getpid()), RingSize: max(8<<20, 3*size), MaxObjectSize: max(1<<20, 2*size), Readers: 1, TrustCounts: true,
	})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, w.Abandon()) })
	b.ReportAllocs()
	return w
}

// finish ends a request whose handle was read by everyone.
func finish(b *testing.B, w *writer, r Request, h serde.Address) {
	if err := r.Commit(); err != nil {
		b.Fatal(err)
	}
	if w.fifo != nil { // which frees only what was read
		c, err := shmring.ReadChunk(w.Segment().Ring(), h.Address)
		if err != nil {
			b.Fatal(err)
		}
		mem.Store32(c.Payload, readsOf(c.Payload)+1)
	}
	r.Finish()
}

func readsOf(payload []byte) uint32 { return mem.Load32(payload) }

// BenchmarkNew is a request with an object that is not in the store yet.
func BenchmarkNew(b *testing.B) {
	keys := jobKeys()
	jobs(b, func(b *testing.B, w *writer, size int) {
		it := qwen(size)
		put := func(i int) {
			r, err := w.Begin("request")
			if err != nil {
				b.Fatal(err)
			}
			h, err := r.Put(keys[i%len(keys)], it, PutOptions{})
			if errors.Is(err, ErrKeyExists) { // kept since the keys began anew
				r.Rollback()
				return
			}
			if err != nil {
				b.Fatal(err)
			}
			finish(b, w, r, h)
		}
		first := max(16, 16<<20/size)
		for i := range first {
			put(i)
		}
		b.SetBytes(int64(size))
		for i := first; b.Loop(); i++ {
			put(i)
		}
	})
}

// BenchmarkRepeat is a request with an object that is in the store.
func BenchmarkRepeat(b *testing.B) {
	jobs(b, func(b *testing.B, w *writer, size int) {
		r, err := w.Begin("first")
		require.NoError(b, err)
		_, err = r.Put("key", qwen(size), PutOptions{})
		require.NoError(b, err)
		defer r.Rollback()
		for b.Loop() {
			r, err := w.Begin("request")
			if err != nil {
				b.Fatal(err)
			}
			h, err := r.Lookup("key")
			if err != nil {
				b.Fatal(err)
			}
			finish(b, w, r, h)
		}
	})
}

// BenchmarkReserveCommit is a request with a new object that is written in place, without the
// writing.
func BenchmarkReserveCommit(b *testing.B) {
	keys := jobKeys()
	jobs(b, func(b *testing.B, w *writer, size int) {
		it := qwen(size)
		for i := range it.Elems {
			it.Elems[i].Data.(*serde.Tensor).Data = nil
		}
		put := func(i int) {
			r, err := w.Begin("request")
			if err != nil {
				b.Fatal(err)
			}
			res, err := r.Reserve(keys[i%len(keys)], it, PutOptions{})
			if errors.Is(err, ErrKeyExists) {
				r.Rollback()
				return
			}
			if err != nil {
				b.Fatal(err)
			}
			h, err := res.Commit()
			if err != nil {
				b.Fatal(err)
			}
			finish(b, w, r, h)
		}
		first := max(16, 16<<20/size)
		for i := range first {
			put(i)
		}
		for i := first; b.Loop(); i++ {
			put(i)
		}
	})
}

// BenchmarkWorker is what a worker does with an address: from the bytes of its item to the
// tensors, and the end of the view. Every object is seen for the first time, or was seen before;
// first has objects of one shape, and shape has as many shapes as objects.
func BenchmarkWorker(b *testing.B) {
	for _, k := range kinds {
		for _, size := range jobSizes[:3] {
			for _, job := range []string{"first", "shape", "seen"} {
				b.Run(fmt.Sprintf("%v/%s/%dKiB", k, job, size>>10), func(b *testing.B) { benchmarkWorker(b, k, job, size) })
			}
		}
	}
}

func benchmarkWorker(b *testing.B, k kind, job string, size int) {
	const objects = 512 // more than a reader remembers
	n := objects
	if job == "seen" {
		n = 1
	}
	o := Options{Name: fmt.Sprintf("ringcache-jobs-%d", os.Getpid()), RingSize: 2*n*size + 16<<20, Readers: 1, MaxObjectSize: 2*size + 1<<20}
	w, err := k.create(o)
	require.NoError(b, err)
	defer func() { require.NoError(b, w.Abandon()) }()
	r, err := Open(o.Name, ReaderOptions{RingSize: o.RingSize, Readers: 1, Lock: newLock()})
	require.NoError(b, err)
	defer func() { require.NoError(b, r.Close()) }()
	req, err := w.Begin("request")
	require.NoError(b, err)
	var keys []string
	var wires [][]byte
	for i := range n {
		it := qwen(size)
		if job == "shape" {
			it.Elems[1].Key = fmt.Sprintf("image_grid_thw_%03d", i)
		}
		key := jobKey(i)
		h, err := req.Put(key, it, PutOptions{})
		require.NoError(b, err)
		wire, err := serde.EncodeAddress(h, "image", serde.Options{})
		require.NoError(b, err)
		keys, wires = append(keys, key), append(wires, wire)
	}
	var v View
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := workerJob(r, &v, keys[i%n], wires[i%n]); err != nil {
			b.Fatal(err)
		}
	}
}

// workerJob is the job of a worker for one address.
func workerJob(r *Reader, v *View, key string, wire []byte) error {
	frames := [1][]byte{wire}
	h, _, err := serde.DecodeAddress(frames[:], serde.Options{})
	if err != nil {
		return err
	}
	if err := r.GetInto(v, key, h); err != nil {
		return err
	}
	if len(v.Item().Elems) != 2 {
		return errInvalid
	}
	return v.Release()
}
