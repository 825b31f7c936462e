package upstream_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/internal/mem"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/objstore/upstream"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
)

// value is an object of the golden files: n bytes b, pickled or as a tensor.
type value struct {
	Kind string `json:"t"`
	N    int    `json:"n"`
	B    *byte  `json:"b"`
}

func (v value) encode() serde.Value {
	var b byte
	if v.B != nil {
		b = *v.B
	}
	if v.Kind == "u8" {
		return tensor(v.N, b)
	}
	return pickled(bytes.Repeat([]byte{b}, v.N))
}

// describe is the inverse, for what a reader got.
func describe(t testing.TB, v serde.Value) value {
	t.Helper()
	switch v := v.(type) {
	case *serde.Tensor:
		out := value{Kind: "u8", N: len(v.Data), B: new(byte)}
		if len(v.Data) > 0 {
			out.B = &v.Data[0]
		}
		return out
	case serde.Pickle:
		for n := range 1 << 16 {
			if p := pickled(make([]byte, n)); len(p) == len(v) {
				out := value{Kind: "bytes", N: n}
				if n > 0 {
					b := v[len(v)-3]
					out.B = &b
				}
				require.Equal(t, out.encode(), v)
				return out
			}
		}
	}
	t.Fatalf("unexpected value %T", v)
	return value{}
}

// sameResult compares the error we returned with vLLM's.
func sameResult(t testing.TB, want json.RawMessage, err error, at ...any) {
	t.Helper()
	e := goldentest.AsError(want)
	if e == nil {
		require.NoError(t, err, at...)
		return
	}
	require.Error(t, err, at...)
	if e.Msg != "" {
		require.Equal(t, e.Msg, upstream.Text(err), at...)
	}
}

// replayer performs the operations of the golden traces.
type replayer struct {
	*store
	gen     *pycompat.Generation
	staleC1 int // touches of stale handles, which vLLM to 0.31 let through
}

func newReplayer(t testing.TB, gen *pycompat.Generation, n, maxObject, readers int) *replayer {
	return &replayer{store: newStore(t, objstore.Options{RingSize: n, MaxObjectSize: maxObject, Readers: readers, Generation: gen}), gen: gen}
}

func (r *replayer) handle(key string, address uint64, id uint32, flip bool) serde.Address {
	h := serde.Address{Address: address, ID: id}
	if r.gen.Signed {
		h.Signature = sign(key, address, id)
		if flip {
			h.Signature[0] ^= 1
		}
	}
	return h
}

func (r *replayer) get(t testing.TB, reader int, key string, h serde.Address) (value, error) {
	v, err := r.readers[reader].Get(key, h)
	if err != nil {
		return value{}, err
	}
	d := describe(t, v.Value())
	return d, v.Release()
}

// touch is a reader's touch. vLLM before 0.32 does not look at the id, so that a
// stale touch can change four bytes of another object; we refuse. To go on
// along the trace the test does that damage itself.
func (r *replayer) touch(t testing.TB, reader int, key string, h serde.Address) error {
	err := r.readers[reader].Touch(context.Background(), key, h)
	if errors.Is(err, objstore.ErrStale) && r.gen.Counting == pycompat.CountTouch {
		r.staleC1++
		c, err := shmring.ReadChunk(r.Segment().Ring(), h.Address)
		if err == nil && len(c.Payload) >= countSize && readCount(c.Payload) >= int64(len(r.readers)) {
			mem.Store32(c.Payload, mem.Load32(c.Payload)+1)
		}
		return nil
	}
	return err
}

func ring4(s shmring.RingState) [4]uint64 {
	return [4]uint64{s.Start, s.End, uint64(s.IDStart), uint64(s.IDEnd)}
}

// TestGoldenStorageTraces replays random operations on real vLLM storages with
// one writer and several readers.
func TestGoldenStorageTraces(t *testing.T) {
	for _, f := range goldentest.Files(t, "storage_traces") {
		t.Run(f.Name, func(t *testing.T) {
			var traces []struct {
				Seed    int
				N       int
				Max     int `json:"max_object_size"`
				Readers int `json:"n_readers"`
				Rows    [][5]json.RawMessage
				Image   string `json:"ring_sha256"`
			}
			f.Decode(t, &traces)
			gen := f.Generation(t)
			// The free rule of 0.11.0 is broken; we serve its readers with the later
			// one. Its traces are comparable until something is freed.
			brokenFree := f.Releases[0] == "0.11.0"
			rows, stale, images := 0, 0, 0
			for _, tr := range traces {
				r := newReplayer(t, gen, tr.N, tr.Max, tr.Readers)
				complete := true
				for i, row := range tr.Rows {
					op := goldentest.Unmarshal[[]json.RawMessage](t, row[0])
					state := goldentest.Unmarshal[[4]uint64](t, row[2])
					if brokenFree && state[2] != 0 {
						complete = false
						break
					}
					if brokenFree && string(op[0]) == `"x"` {
						continue // its table of chunks begins with a phantom, on which this raises KeyError
					}
					at := []any{"seed %d row %d %s", tr.Seed, i, row[0]}
					r.replay(t, op, row[1], at)
					s, err := r.State()
					require.NoError(t, err)
					require.Equal(t, state, ring4(s.Ring), at...)
					compareLive(t, s, goldentest.Unmarshal[[][3]*int64](t, row[3]), at)
					if string(row[4]) != "null" {
						require.Equal(t, goldentest.Unmarshal[[]uint32](t, row[4]), touchedIDs(s), at...)
					}
					require.NoError(t, r.CheckStructure())
					rows++
				}
				if complete {
					sum := sha256.Sum256(r.Segment().Ring())
					require.Equal(t, tr.Image, hex.EncodeToString(sum[:]), "seed %d: memory", tr.Seed)
					images++
				}
				stale += r.staleC1
			}
			require.NotZero(t, rows)
			t.Logf("%s: %d traces, %d operations, %d memory images, %d stale touches refused; releases %v", f.Name, len(traces), rows, images, stale, f.Releases)
		})
	}
}

func touchedIDs(s objstore.State) []uint32 {
	out := []uint32{}
	for _, o := range s.Objects {
		if o.Pinned {
			out = append(out, o.ID)
		}
	}
	slices.Sort(out)
	return out
}

// compareLive compares id, uses and reads. vLLM's list is sorted by id.
func compareLive(t testing.TB, s objstore.State, want [][3]*int64, at []any) {
	t.Helper()
	objs := slices.Clone(s.Objects)
	slices.SortFunc(objs, func(a, b objstore.ObjectState) int { return int(int64(a.ID) - int64(b.ID)) })
	require.Len(t, objs, len(want), at...)
	for i, o := range objs {
		require.Equal(t, *want[i][0], int64(o.ID), at...)
		require.Equal(t, *want[i][1], o.Uses, at...)
		if want[i][2] != nil {
			require.Equal(t, *want[i][2], o.Reads, at...)
		}
	}
}

func (r *replayer) replay(t testing.TB, op []json.RawMessage, want json.RawMessage, at []any) {
	t.Helper()
	kind := goldentest.Unmarshal[string](t, op[0])
	key := func() string { return goldentest.Unmarshal[string](t, op[1]) }
	switch kind {
	case "p":
		b := goldentest.Unmarshal[byte](t, op[4])
		v := value{Kind: map[string]string{"y": "bytes", "u": "u8"}[goldentest.Unmarshal[string](t, op[2])], N: goldentest.Unmarshal[int](t, op[3]), B: &b}
		h, err := r.Put(key(), v.encode())
		r.sameHandle(t, want, h, err, at)
	case "g":
		h, err := r.GetCached(key())
		r.sameHandle(t, want, h, err, at)
	case "q":
		require.Equal(t, goldentest.Unmarshal[bool](t, want), r.Cached(key()), at...)
	case "t":
		sameResult(t, want, r.Touch(key()), at...)
	case "r":
		r.ReleaseTouches()
	case "x":
		_, err := r.FreeUnused()
		sameResult(t, want, err, at...)
	case "c":
		sameResult(t, want, r.Clear(), at...)
	case "R", "T", "TR", "Z":
		reader, key := goldentest.Unmarshal[int](t, op[1]), goldentest.Unmarshal[string](t, op[2])
		h := r.handle(key, goldentest.Unmarshal[uint64](t, op[3]), goldentest.Unmarshal[uint32](t, op[4]), kind == "Z")
		if kind == "Z" && !r.gen.Signed {
			return // the generator could not do it
		}
		var err error
		var got value
		if kind == "T" || kind == "TR" {
			err = r.touch(t, reader, key, h)
		}
		if kind != "T" && err == nil {
			got, err = r.get(t, reader, key, h)
		}
		sameResult(t, want, err, at...)
		if err == nil && kind != "T" {
			require.Equal(t, goldentest.Unmarshal[value](t, want).encode(), got.encode(), at...)
		}
	default:
		t.Fatalf("unknown operation %q", kind)
	}
}

func (r *replayer) sameHandle(t testing.TB, want json.RawMessage, h serde.Address, err error, at []any) {
	t.Helper()
	sameResult(t, want, err, at...)
	if err == nil {
		require.Equal(t, goldentest.Unmarshal[[2]uint64](t, want), [2]uint64{h.Address, uint64(h.ID)}, at...)
	}
}

// TestGoldenRingImages replays scripted scenarios and compares every byte of
// the segment after every step.
func TestGoldenRingImages(t *testing.T) {
	for _, f := range goldentest.Files(t, "ring_images") {
		t.Run(f.Name, func(t *testing.T) {
			var scenarios []struct {
				Name    string
				N       int
				Max     int `json:"max_object_size"`
				Readers int `json:"n_readers"`
				Steps   []struct {
					Op      []json.RawMessage
					R       json.RawMessage
					State   [4]uint64
					RingMD  [][2]uint64 `json:"ring_md"`
					Keys    [][]any
					W       [][2]int64
					Touched []uint32
					Segment string
				}
			}
			f.Decode(t, &scenarios)
			gen := f.Generation(t)
			brokenFree := f.Releases[0] == "0.11.0"
			steps, bytesCompared := 0, 0
			for _, sc := range scenarios {
				r := newReplayer(t, gen, sc.N, sc.Max, sc.Readers)
				for i, st := range sc.Steps {
					if brokenFree && (st.State[2] != 0 || sc.Name == "idwrap") {
						break // see TestGoldenStorageTraces; its id window can't be set
					}
					at := []any{"%s step %d %s", sc.Name, i, st.Op}
					r.step(t, st.Op, st.R, at)
					want := goldentest.Hex(t, st.Segment)
					require.Equal(t, want, r.mem, at...)
					s, err := r.State()
					require.NoError(t, err)
					require.Equal(t, st.State, ring4(s.Ring), at...)
					keys := [][]any{}
					for _, o := range s.Objects {
						keys = append(keys, []any{o.Key, float64(o.Address), float64(o.ID)})
					}
					require.Equal(t, append([][]any{}, st.Keys...), keys, at...)
					if st.Touched != nil {
						require.Equal(t, st.Touched, touchedIDs(s), at...)
					}
					for _, w := range st.W {
						for _, o := range s.Objects {
							if int64(o.ID) == w[0] {
								require.Equal(t, w[1], o.Uses, at...)
							}
						}
					}
					steps++
					bytesCompared += len(want)
				}
			}
			require.NotZero(t, steps)
			t.Logf("%s: %d scenarios, %d steps, %d segment bytes compared; releases %v", f.Name, len(scenarios), steps, bytesCompared, f.Releases)
		})
	}
}

// step performs one operation of a ring image scenario.
func (r *replayer) step(t testing.TB, op []json.RawMessage, want json.RawMessage, at []any) {
	t.Helper()
	if string(want) == `"unsupported"` {
		return
	}
	arg := func(i int) json.RawMessage { return op[i] }
	str := func(i int) string { return goldentest.Unmarshal[string](t, arg(i)) }
	switch kind := str(0); kind {
	case "put":
		h, err := r.Put(str(1), goldentest.Unmarshal[value](t, arg(2)).encode())
		r.sameHandle(t, want, h, err, at)
	case "get_cached":
		h, err := r.GetCached(str(1))
		r.sameHandle(t, want, h, err, at)
	case "sig":
		s, err := r.Signature(str(1))
		require.NoError(t, err)
		require.Equal(t, goldentest.Unmarshal[string](t, want), hex.EncodeToString(s[:]), at...)
	case "touch":
		sameResult(t, want, r.Touch(str(1)), at...)
	case "release":
		r.ReleaseTouches()
	case "free_unused":
		_, err := r.FreeUnused()
		sameResult(t, want, err, at...)
	case "clear":
		sameResult(t, want, r.Clear(), at...)
	case "rget", "rtouch":
		h := r.handle(str(2), goldentest.Unmarshal[uint64](t, arg(3)), goldentest.Unmarshal[uint32](t, arg(4)), false)
		if kind == "rtouch" {
			sameResult(t, want, r.touch(t, goldentest.Unmarshal[int](t, arg(1)), str(2), h), at...)
			return
		}
		got, err := r.get(t, goldentest.Unmarshal[int](t, arg(1)), str(2), h)
		sameResult(t, want, err, at...)
		if err == nil {
			require.Equal(t, goldentest.Unmarshal[value](t, want).encode(), got.encode(), at...)
		}
	case "wget":
		v, err := r.Get(serde.Address{Address: goldentest.Unmarshal[uint64](t, arg(1)), ID: goldentest.Unmarshal[uint32](t, arg(2))})
		sameResult(t, want, err, at...)
		if err == nil {
			require.Equal(t, goldentest.Unmarshal[value](t, want).encode(), describe(t, v.Value()).encode(), at...)
			require.NoError(t, v.Release())
		}
	case "setids":
		require.Empty(t, first(r.State()).Objects)
		r.opt.FirstID = goldentest.Unmarshal[uint32](t, arg(1))
		r.create(t)
	default:
		t.Fatalf("unknown operation %q", kind)
	}
}

// TestGoldenShmCache replays requests through real vLLM sender and receiver
// caches. The sender's part above the store, look up or put or send inline, is
// done here in a few lines.
func TestGoldenShmCache(t *testing.T) {
	for _, f := range goldentest.Files(t, "shm_cache") {
		t.Run(f.Name, func(t *testing.T) {
			var traces []struct {
				Seed    int
				N       int
				Readers int `json:"n_readers"`
				Rows    []struct {
					Items  [][2]any
					Cached []bool
					P0     []json.RawMessage
					P1     []json.RawMessage
					Keys   [][]any
					W      [][2]int64
					State  [4]uint64
				}
			}
			f.Decode(t, &traces)
			gen := f.Generation(t)
			brokenFree := f.Releases[0] == "0.11.0"
			requests, items := 0, 0
			for _, tr := range traces {
				r := newReplayer(t, gen, tr.N, 1<<20, tr.Readers)
				for i, row := range tr.Rows {
					if brokenFree && row.State[2] != 0 {
						break // see TestGoldenStorageTraces
					}
					at := []any{"seed %d request %d", tr.Seed, i}
					handles := r.request(t, row.Items, row.Cached, row.P0, at)
					for n := range tr.Readers {
						r.receive(t, n, handles, row.P1[n], at)
					}
					s, err := r.State()
					require.NoError(t, err)
					require.Equal(t, row.State, ring4(s.Ring), at...)
					require.Len(t, s.Objects, len(row.Keys), at...)
					for j, o := range s.Objects {
						require.Equal(t, row.Keys[j], []any{o.Key, float64(o.Address), float64(o.ID)}, at...)
					}
					requests++
					items += len(row.Items)
				}
			}
			require.NotZero(t, requests)
			t.Logf("%s: %d traces, %d requests, %d items; releases %v", f.Name, len(traces), requests, items, f.Releases)
		})
	}
}

type sent struct {
	key    string
	size   int
	handle *serde.Address // nil: inline
}

func (r *replayer) request(t testing.TB, items [][2]any, cached []bool, p0 []json.RawMessage, at []any) []sent {
	t.Helper()
	for i, it := range items {
		require.Equal(t, cached[i], r.Cached(it[0].(string)), at...)
	}
	for _, it := range items {
		require.NoError(t, r.Touch(it[0].(string)))
	}
	var out []sent
	for i, it := range items {
		key, size := it[0].(string), int(it[1].(float64))
		h, err := r.GetCached(key)
		if errors.Is(err, objstore.ErrNotFound) && !cached[i] {
			h, err = r.Put(key, image(size, 0))
		}
		s := sent{key: key, size: size}
		switch e := goldentest.AsError(p0[i]); {
		case e != nil: // evicted between the look-up and its use
			require.ErrorIs(t, err, objstore.ErrNotFound, at...)
			continue
		case string(p0[i]) == `"inline"`:
			require.True(t, errors.Is(err, objstore.ErrFull) || errors.Is(err, objstore.ErrTooLarge), at...)
		default:
			require.NoError(t, err, at...)
			require.Equal(t, goldentest.Unmarshal[string](t, p0[i]), handleText(h), at...)
			s.handle = &h
		}
		out = append(out, s)
	}
	r.ReleaseTouches()
	return out
}

func handleText(h serde.Address) string {
	return new(big.Int).SetUint64(h.Address).String() + ":" + new(big.Int).SetUint64(uint64(h.ID)).String()
}

func (r *replayer) receive(t testing.TB, reader int, handles []sent, want json.RawMessage, at []any) {
	t.Helper()
	var err error
	for _, s := range handles {
		if s.handle != nil && err == nil {
			err = r.touch(t, reader, s.key, *s.handle)
		}
	}
	sizes := []int{}
	for _, s := range handles {
		if err != nil {
			break
		}
		if s.handle == nil {
			sizes = append(sizes, s.size)
			continue
		}
		var v *objstore.View
		if v, err = r.readers[reader].Get(s.key, *s.handle); err == nil {
			sizes = append(sizes, len(v.Item().Elems[0].Data.(*serde.Tensor).Data))
			err = v.Release()
		}
	}
	sameResult(t, want, err, at...)
	if err == nil {
		require.Equal(t, goldentest.Unmarshal[[]int](t, want), sizes, at...)
	}
}

func first[T any](v T, _ error) T { return v }
