//go:build linux

package encoder_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

func openTree(t *testing.T, folder string, layout encoder.Tree) *disk.Level {
	t.Helper()
	l, err := disk.Open(folder, disk.Options{Layout: layout, Space: "gemma", Shared: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// TestTreeOnDisk: a level over a tree that connectors write to as well.
func TestTreeOnDisk(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, folder := context.Background(), t.TempDir()
	l := openTree(t, folder, encoder.Tree{})
	tensor := &serde.Tensor{DType: "float16", Shape: []int{3, 2}, Data: []byte("twelve bytes")}
	o := tier.Object{Key: key("ours"), Parent: "p", Tenant: "t", Cost: time.Second}
	require.NoError(t, encoder.Save(ctx, l, o, tensor))
	o.Size, o.Note = 12, []byte("float16 3 2")
	file, err := os.ReadFile(filepath.Join(folder, "ours/encoder_cache.safetensors"))
	require.NoError(t, err)
	require.Equal(t, treeFile(t, tree, o, tensor.Data), file)
	info, err := os.Stat(filepath.Join(folder, "ours/encoder_cache.safetensors"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "as a connector's")

	// A connector writes, another one is about to, a third has looked and found nothing.
	stock := tier.Object{Key: key("stock"), Size: 12, Note: []byte("float16 3 2")}
	write(t, folder, "stock/encoder_cache.safetensors", treeFile(t, encoder.Tree{Plain: true}, stock, tensor.Data))
	write(t, folder, "writing/.tmpAbCdEf", file)
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "looked"), 0o755))
	for _, k := range []tier.Key{key("ours"), key("stock")} {
		got, err := encoder.Load(ctx, l, k)
		require.NoError(t, err)
		require.Equal(t, tensor, got)
	}
	require.Equal(t, []tier.Found{{Object: o}, {Object: stock}}, l.Stat(ctx, []tier.Key{key("ours"), key("stock")}))
	for _, name := range []string{"writing", "looked", "absent"} {
		_, err := encoder.Load(ctx, l, key(name))
		require.ErrorIs(t, err, tier.ErrNotFound, name)
	}
	require.NoError(t, encoder.Save(ctx, l, tier.Object{Key: key("looked")}, tensor))

	// Damage of ours is found by its checksum, and of theirs by its length.
	for name, damage := range map[string]func([]byte) []byte{
		"flipped": func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)-1] },
		"empty":   func([]byte) []byte { return nil },
	} {
		write(t, folder, name+"/encoder_cache.safetensors", damage(bytes.Clone(file)))
		_, err := encoder.Load(ctx, l, key(name))
		require.ErrorIs(t, err, tier.ErrNotFound, name)
	}
	require.NoError(t, l.Close())

	// The next start may leave the checksums away; it finds everything.
	l = openTree(t, folder, encoder.Tree{Plain: true})
	require.NoError(t, l.WaitIndex(ctx))
	names := make(map[string]bool)
	for o, err := range l.List(ctx, "gemma") {
		require.NoError(t, err)
		names[o.Name] = true
	}
	for _, name := range []string{"ours", "stock", "looked"} {
		require.True(t, names[name], name)
		_, err := encoder.Load(ctx, l, key(name))
		require.NoError(t, err)
	}
	require.NoError(t, encoder.Save(ctx, l, tier.Object{Key: key("plain")}, tensor))
	file, err = os.ReadFile(filepath.Join(folder, "plain/encoder_cache.safetensors"))
	require.NoError(t, err)
	require.Equal(t, treeFile(t, encoder.Tree{Plain: true}, stock, tensor.Data), file)
	require.NoError(t, l.Close())
}

// TestTreeNeedsASpace: files of two models must not meet.
func TestTreeNeedsASpace(t *testing.T) {
	_, err := disk.Open(t.TempDir(), disk.Options{Layout: encoder.Tree{}})
	require.ErrorIs(t, err, os.ErrInvalid)
	folder := t.TempDir()
	require.NoError(t, openTree(t, folder, encoder.Tree{}).Close())
	_, err = disk.Open(folder, disk.Options{Layout: encoder.Tree{}, Space: "other"})
	require.ErrorIs(t, err, os.ErrInvalid)
}
