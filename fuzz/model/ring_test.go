package model_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

func release(t *testing.T, version string) model.Release {
	t.Helper()
	r, err := model.Lookup(version)
	require.NoError(t, err)
	return r
}

// TestGoldenRingTraces performs what real rings of every release performed and compares every
// result, every position and the memory. That of 0.11.0 is part of it, with its defect.
func TestGoldenRingTraces(t *testing.T) {
	names, err := filepath.Glob("../../testdata/golden/ring_traces.*.json")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			var file struct {
				Releases []string
				Data     []struct {
					Seed, N int
					Rows    [][4]json.RawMessage
				}
			}
			require.NoError(t, json.Unmarshal(text, &file))
			require.NotEmpty(t, file.Releases)
			rows := 0
			for _, version := range file.Releases {
				for _, trace := range file.Data {
					f := model.NewFIFO(release(t, version), trace.N, 0)
					for i, row := range trace.Rows {
						f = replay(t, version, f, row, trace.Seed, i)
						rows++
					}
				}
			}
			require.NotZero(t, rows)
			t.Logf("%d rows of %d traces, releases %v", rows, len(file.Data), file.Releases)
		})
	}
}

// as decodes a part of a trace.
func as[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &v), "%s", raw)
	return v
}

func replay(t *testing.T, version string, f *model.FIFO, row [4]json.RawMessage, seed, i int) *model.FIFO {
	t.Helper()
	at := []any{"seed %d row %d", seed, i}
	op := as[[]json.RawMessage](t, row[0])
	switch kind := as[string](t, op[0]); kind {
	case "i":
		f = model.NewFIFO(release(t, version), len(f.Memory), as[uint32](t, op[1]))
	case "a":
		size := as[int](t, op[1])
		address, id, err := f.Alloc(size)
		if string(row[1]) == `"M"` {
			require.ErrorIs(t, err, model.ErrFull, at...)
			break
		}
		require.NoError(t, err, at...)
		require.Equal(t, as[[2]int](t, row[1]), [2]int{address, int(id)}, at...)
		for p := range size {
			f.Memory[model.Offset(address, len(f.Memory))+8+p] = byte(id*31 + 7)
		}
	case "f":
		limit := len(f.Memory)
		if string(op[1]) != "null" {
			limit = as[int](t, op[1])
		}
		left := as[int](t, op[2])
		freed := f.Free(func(uint32) bool { left--; return left >= 0 }, limit)
		require.Equal(t, as[[]uint32](t, row[1]), append([]uint32{}, freed...), at...)
	case "c":
		f.Clear()
	case "img":
		sum := sha256.Sum256(f.Memory)
		require.Equal(t, as[string](t, row[1]), hex.EncodeToString(sum[:]), at...)
	default:
		t.Fatalf("unknown operation %q", kind)
	}
	require.Equal(t, as[[4]int](t, row[2]), [4]int{f.Start, f.End, int(f.IDStart), int(f.IDEnd)}, at...)
	if string(op[0]) != `"i"` { // that row has no count of the table
		require.Len(t, f.Live, as[int](t, row[3]), at...)
	}
	return f
}

func do(t *testing.T, r *model.Ring, line string) fuzz.Reply {
	t.Helper()
	ops, err := fuzz.Parse(line)
	require.NoError(t, err)
	replies, err := r.Do(ops)
	require.NoError(t, err)
	require.Len(t, replies, 1)
	return replies[0]
}

// The dialogue is that of the agent's own test, so that both give the same fields and kinds.
func TestRingAnswersAsTheAgent(t *testing.T) {
	r := model.NewRing(release(t, "0.33.0"))
	for _, step := range []struct{ line, kind, reply string }{
		{`{"op":"ring.new","ring":"r","size":100}`, "", `{}`},
		{`{"op":"ring.new","ring":"r","size":100}`, "invalid", ""},
		{`{"op":"ring.alloc","ring":"r","size":20}`, "", `{"address":0,"id":0}`},
		{`{"op":"ring.alloc","ring":"r","size":30}`, "", `{"address":28,"id":1}`},
		{`{"op":"ring.header","ring":"r","address":28}`, "", `{"id":1,"size":38}`},
		{`{"op":"ring.header","ring":"r","address":128}`, "", `{"id":1,"size":38}`},
		{`{"op":"ring.alloc","ring":"r","size":30}`, "full", ""},
		{`{"op":"ring.alloc","ring":"r","size":9223372036854775807}`, "full", ""},
		{`{"op":"ring.alloc","ring":"r","size":0}`, "invalid", ""},
		{`{"op":"ring.alloc","ring":"r","size":-9223372036854775808}`, "invalid", ""},
		{`{"op":"ring.alloc","ring":"r","size":1.5}`, "invalid", ""},
		{`{"op":"ring.alloc","ring":"r","size":1,"sise":2}`, "invalid", ""},
		{`{"op":"ring.free","ring":"r","ids":[1]}`, "", `{"freed":[]}`},
		{`{"op":"ring.free","ring":"r","ids":[-1]}`, "invalid", ""},
		{`{"op":"ring.free","ring":"r"}`, "invalid", ""},
		{`{"op":"ring.free","ring":"r","all":true,"limit":0}`, "", `{"freed":[]}`},
		{`{"op":"ring.free","ring":"r","ids":[0,7],"limit":null}`, "", `{"freed":[0]}`},
		{`{"op":"ring.state","ring":"r"}`, "", `{"start":28,"end":66,"id_start":1,"id_end":2,"metadata":{"1":28}}`},
		{`{"op":"ring.clear","ring":"r"}`, "", `{}`},
		{`{"op":"ring.state","ring":"r"}`, "", `{"start":0,"end":0,"id_start":2,"id_end":2,"metadata":{}}`},
		{`{"op":"ring.header","ring":"r","address":97}`, "corrupt", ""},
		{`{"op":"ring.header","ring":"r","address":-1}`, "invalid", ""},
		{`{"op":"ring.close","ring":"r"}`, "", `{}`},
		{`{"op":"ring.state","ring":"r"}`, "invalid", ""},
		{`{"op":"ring.new","ring":"old","size":100,"generation":"0.31.0","first_id":2147483647}`, "", `{}`},
		{`{"op":"ring.alloc","ring":"old","size":1}`, "", `{"address":0,"id":2147483647}`},
		{`{"op":"ring.alloc","ring":"old","size":1}`, "", `{"address":9,"id":0}`},
		{`{"op":"ring.clear","ring":"old"}`, "", `{}`},
		{`{"op":"ring.state","ring":"old"}`, "", `{"start":0,"end":0,"id_start":0,"id_end":0,"metadata":{}}`},
		{`{"op":"ring.new","ring":"x","size":100,"generation":"9.9.9"}`, "unsupported", ""},
		{`{"op":"ring.new","ring":"x","size":100,"first_id":2147483648}`, "invalid", ""},
		{`{"op":"ring.new","ring":"x","size":8}`, "invalid", ""},
		{`{"op":"ring.new","ring":"x","size":1000000000000}`, "invalid", ""},
		{`{"op":"ring.new","ring":"x","size":100,"generation":"0.33.0","treat_as":"0.31.0"}`, "invalid", ""},
		{`{"op":"ring.new","ring":"x","size":100,"treat_as":"0.31.0"}`, "invalid", ""},
		{`{"op":"ring.new","ring":"x","size":100,"name":"n","generation":"9.9.9","treat_as":"0.31.0"}`, "", `{}`},
		{`{"op":"ring.new","ring":"y","size":100,"name":"n"}`, "exists_segment", ""},
	} {
		reply := do(t, r, step.line)
		require.Equal(t, step.kind, reply.Kind, "%s: %s", step.line, reply)
		if step.kind == "" {
			require.JSONEq(t, step.reply, reply.String(), step.line)
		}
	}
	require.Equal(t, map[uint32]int{}, maps.Clone(r.FIFO("old").Live))
	require.NoError(t, r.Close())
	require.Nil(t, r.FIFO("old"))
	_, err := r.Do([]fuzz.Op{{Name: "lru.new"}})
	require.ErrorContains(t, err, "lru.new")
}

// TestFirstReleaseOverlapsLiveChunks: the defect is part of the model of 0.11.0, and of no other.
func TestFirstReleaseOverlapsLiveChunks(t *testing.T) {
	overlaps := func(version string) bool {
		f := model.NewFIFO(release(t, version), 64, 1)
		for range 400 {
			_, _, err := f.Alloc(5)
			if err != nil {
				gone := f.IDStart
				f.Free(func(id uint32) bool { return id == gone }, 64)
			}
			for id, address := range f.Live {
				if got, _, _ := f.Header(address); id != 0 && got != id {
					return true
				}
			}
		}
		return false
	}
	require.True(t, overlaps("0.11.0"))
	require.False(t, overlaps("0.11.2"))
}

// TestFirstReleaseHandsOutMoreThanTheRing: when the start of 0.11.0 lies behind the end, there seems to
// be more than the ring. The real one then hands out chunks larger than the ring.
func TestFirstReleaseHandsOutMoreThanTheRing(t *testing.T) {
	const size, larger = 64, 60 // with a header, larger has 68 bytes
	for version, handsOut := range map[string]bool{"0.11.0": true, "0.11.2": false} {
		f := model.NewFIFO(release(t, version), size, 1)
		alloc := func() {
			_, _, err := f.Alloc(4)
			require.NoError(t, err)
		}
		freeOne := func() { require.Len(t, f.Free(func(uint32) bool { return true }, 1), 1) }
		for range 5 {
			alloc()
		}
		freeOne()
		freeOne()
		alloc() // behind the end of the memory
		freeOne()
		alloc()
		for range 3 {
			freeOne()
		}
		alloc()
		freeOne()
		require.Equal(t, handsOut, f.Start > f.End, version)
		_, _, err := f.Alloc(larger)
		if !handsOut {
			require.ErrorIs(t, err, model.ErrFull, version)
			continue
		}
		require.NoError(t, err, version)
		_, _, err = f.Alloc(2*size + 1)
		require.ErrorIs(t, err, model.ErrFull)
	}
}
