package kv

import (
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
)

func qwen() Layout {
	return Layout{
		Model: "Qwen/Qwen3-8B", Engine: "0.33.0", World: 2, ChunkTokens: 256,
		Groups: []Group{{Layers: 36, Slots: 256, Hidden: 512, DType: "bfloat16", Planes: 2, BlockTokens: 16}},
	}
}

// TestSpace: the space lies on disks, so it stays as it is. The example is that of docs/format.md.
func TestSpace(t *testing.T) {
	l := qwen()
	space, err := l.Space(1, 0, "alice")
	require.NoError(t, err)
	require.Equal(t, "kv.Qwen3-8B.worker1of2.group0.471def25bf48fc44fe9520bb7d672fbb", space)
	require.NoError(t, tier.Key{Space: space, Name: "a"}.Validate())
	l.Model = strings.Repeat("é", 256)
	space, err = l.Space(1, 0, "alice")
	require.NoError(t, err)
	require.Regexp(t, `^[0-9A-Za-z][-._0-9A-Za-z]{32,200}$`, space)
}

// TestSpacesDiffer: whatever decides on the bytes makes another space, and nothing runs into its neighbour.
func TestSpacesDiffer(t *testing.T) {
	seen := map[string]string{}
	add := func(what string, l Layout, worker, group int, salt string) {
		t.Helper()
		space, err := l.Space(worker, group, salt)
		require.NoError(t, err, what)
		require.Empty(t, seen[space], "%s has the space of another layout", what)
		seen[space] = what
	}
	change := func(what string, f func(l *Layout, g *Group)) {
		t.Helper()
		l := qwen()
		f(&l, &l.Groups[0])
		add(what, l, 0, 0, "")
	}
	change("unchanged", func(*Layout, *Group) {})
	change("model", func(l *Layout, _ *Group) { l.Model = "Qwen/Qwen3-8" })
	change("engine", func(l *Layout, _ *Group) { l.Engine = "0.32.0" })
	change("model and engine", func(l *Layout, _ *Group) { l.Model, l.Engine = "Qwen/Qwen3-8B0", ".33.0" })
	change("world", func(l *Layout, _ *Group) { l.World = 3 })
	change("chunk", func(l *Layout, _ *Group) { l.ChunkTokens = 512 })
	change("layers", func(_ *Layout, g *Group) { g.Layers = 35 })
	change("slots", func(_ *Layout, g *Group) { g.Slots = 128 })
	change("hidden", func(_ *Layout, g *Group) { g.Hidden = 1024 })
	change("dtype", func(_ *Layout, g *Group) { g.DType = "float16" })
	change("planes", func(_ *Layout, g *Group) { g.Planes = 1 })
	change("block", func(_ *Layout, g *Group) { g.BlockTokens = 32 })
	change("window", func(_ *Layout, g *Group) { g.Window = 1 })
	change("recurrent", func(_ *Layout, g *Group) { g.Recurrent = true })
	l := qwen()
	l.Groups = append(l.Groups, l.Groups[0])
	add("two groups", l, 0, 0, "")
	add("the second group", l, 0, 1, "")
	add("worker", qwen(), 1, 0, "")
	add("salt", qwen(), 0, 0, "alice")
	add("another salt", qwen(), 0, 0, "bob")
	require.Len(t, seen, 19)
}

func TestRefusedLayouts(t *testing.T) {
	for want, f := range map[string]func(l *Layout, g *Group){
		"name is empty":         func(l *Layout, _ *Group) { l.Model = "" },
		"an @ separates":        func(l *Layout, _ *Group) { l.Model = "a@b" },
		"the engine has":        func(l *Layout, _ *Group) { l.Engine = strings.Repeat("x", 256) },
		"world of 0":            func(l *Layout, _ *Group) { l.World = 0 },
		"world of 256":          func(l *Layout, _ *Group) { l.World = 256 },
		"a chunk of 0":          func(l *Layout, _ *Group) { l.ChunkTokens = 0 },
		"a chunk of 65537":      func(l *Layout, _ *Group) { l.ChunkTokens = 65537 },
		"0 groups":              func(l *Layout, _ *Group) { l.Groups = nil },
		"65 groups":             func(l *Layout, _ *Group) { l.Groups = make([]Group, 65) },
		`dtype "half"`:          func(_ *Layout, g *Group) { g.DType = "half" },
		"3 planes":              func(_ *Layout, g *Group) { g.Planes = 3 },
		"0 layers":              func(_ *Layout, g *Group) { g.Layers = 0 },
		"-1 slots":              func(_ *Layout, g *Group) { g.Slots = -1 },
		"0 elements":            func(_ *Layout, g *Group) { g.Hidden = 0 },
		"1048577 slots":         func(_ *Layout, g *Group) { g.Slots = 1<<20 + 1 },
		"window of -1":          func(_ *Layout, g *Group) { g.Window = -1 },
		"blocks of 0":           func(_ *Layout, g *Group) { g.BlockTokens = 0 },
		"blocks of 24":          func(_ *Layout, g *Group) { g.BlockTokens = 24 },
		"more than 2147483648":  func(_ *Layout, g *Group) { g.Layers, g.Slots, g.Hidden = 1<<12, 1<<12, 1<<10 },
		"2147483648 layers":     func(_ *Layout, g *Group) { g.Layers, g.Slots, g.Hidden = 1<<31, 1<<20, 1<<31 }, // 2^84 bytes
		"9223372036854775807 e": func(_ *Layout, g *Group) { g.Hidden = math.MaxInt },
	} {
		l := qwen()
		f(&l, &l.Groups[0:1:1][0])
		require.ErrorIs(t, l.Validate(), fs.ErrInvalid, want)
		require.ErrorContains(t, l.Validate(), want)
		_, err := l.Space(0, 0, "")
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	l := qwen()
	for _, c := range []struct {
		worker, group int
		salt          string
	}{{2, 0, ""}, {-1, 0, ""}, {0, 1, ""}, {0, -1, ""}, {0, 0, "a/b"}} {
		_, err := l.Space(c.worker, c.group, c.salt)
		require.ErrorIs(t, err, fs.ErrInvalid, "%+v", c)
	}
	l.Groups[0].Recurrent, l.Groups[0].BlockTokens = true, 4096
	require.NoError(t, l.Validate(), "the block of a state may be longer than a chunk")
}

func TestGroup(t *testing.T) {
	g := qwen().Groups[0]
	require.Equal(t, []int{2, 36, 256, 512}, g.Shape())
	require.EqualValues(t, 2*36*256*512*2, g.Bytes())
	g.Planes = 1
	require.Equal(t, []int{36, 256, 512}, g.Shape())
	// The largest object that is allowed.
	g = Group{Layers: 1 << 10, Slots: 1 << 10, Hidden: 1 << 10, DType: "float16", Planes: 1, BlockTokens: 1}
	require.NoError(t, g.check(1))
	require.EqualValues(t, maxObjectBytes, g.Bytes())
	g.Hidden++
	require.Error(t, g.check(1))
	for _, d := range goldens(t)["0.5.6"].DType {
		require.Equal(t, d.Size, serde.DType(d.Torch).ItemSize())
	}
}

func TestAlignChunk(t *testing.T) {
	for _, c := range []struct{ least, block, want int }{{256, 16, 256}, {256, 32, 256}, {256, 48, 288}, {1, 1, 1}, {16, 100, 100}, {65536, 65536, 65536}} {
		got, err := AlignChunk(c.least, c.block)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {65537, 1}, {1, 65537}, {65536, 48}} {
		_, err := AlignChunk(c[0], c[1])
		require.ErrorIs(t, err, fs.ErrInvalid, "%v", c)
	}
}
