//go:build linux

package memory_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/memory"
)

// Look reads the segment of a level that lives, and one that nobody serves.
func TestLookBesideTheLevel(t *testing.T) {
	ctx := t.Context()
	o := memory.Options{Name: "look", Dir: t.TempDir(), Size: 1 << 20}
	l, err := memory.Open(o)
	require.NoError(t, err)
	object := tier.Object{Key: tier.Key{Space: "s", Name: "a/b"}, Size: 5000, Parent: "p", Tenant: "t", Cost: 7, Note: []byte("note")}
	data := bytes.Repeat([]byte("x"), 5000)
	puts := []tier.Put{{Object: object, Bytes: data}, {Object: tier.Object{Key: tier.Key{Space: "other", Name: "\xff"}}}}
	l.Put(ctx, puts)
	require.NoError(t, errors.Join(puts[0].Err, puts[1].Err))
	lease, err := l.Lease(ctx, tier.LeaseOptions{ID: "l"})
	require.NoError(t, err)
	reserved := tier.Key{Space: "s", Name: "reserved"}
	require.NoError(t, lease.Reserve([]tier.Object{{Key: reserved, Size: 9}})[0].Err)

	look := func() {
		r, err := memory.Look(o.Name, o.Dir)
		require.NoError(t, err)
		names := map[tier.Key]tier.Object{}
		for x, err := range r.List(ctx, "") {
			require.NoError(t, err)
			names[x.Key] = x
		}
		require.Equal(t, map[tier.Key]tier.Object{object.Key: object, puts[1].Object.Key: puts[1].Object}, names)
		for x := range r.List(ctx, "other") {
			require.Equal(t, "\xff", x.Name)
		}
		require.EqualValues(t, 2, r.Usage().Objects)
		gets := []tier.Get{{Key: object.Key}, {Key: reserved}, {Key: puts[1].Object.Key}}
		r.Get(ctx, gets)
		require.NoError(t, gets[0].Err)
		require.Equal(t, data, gets[0].Bytes)
		require.Equal(t, object, gets[0].Object)
		require.ErrorIs(t, gets[1].Err, tier.ErrNotFound, "nobody sees a reservation")
		require.NoError(t, gets[2].Err)
		require.Empty(t, gets[2].Bytes)
		found := r.Stat(ctx, []tier.Key{reserved, object.Key})
		require.ErrorIs(t, found[0].Err, tier.ErrNotFound)
		require.Equal(t, object, found[1].Object)
		put := []tier.Put{{Object: object, Bytes: data}}
		r.Put(ctx, put)
		require.ErrorIs(t, put[0].Err, errors.ErrUnsupported)
		require.ErrorIs(t, r.Delete(ctx, []tier.Key{object.Key})[0], errors.ErrUnsupported)
		require.NoError(t, r.Close())
		require.NoError(t, r.Close())
		r.Get(ctx, gets)
		require.ErrorIs(t, gets[0].Err, fs.ErrClosed)
	}
	look()
	_, err = memory.Open(memory.Options{Name: o.Name, Dir: o.Dir})
	require.ErrorIs(t, err, segment.ErrOwned)
	require.NoError(t, l.CheckStructure())
	require.NoError(t, l.Close())
	look()

	// Size 0 takes a segment over, and makes none.
	l, err = memory.Open(memory.Options{Name: o.Name, Dir: o.Dir})
	require.NoError(t, err)
	require.Equal(t, o.Size, l.Usage().Capacity)
	require.Len(t, l.Leases(), 1)
	require.NoError(t, l.CheckStructure())
	require.NoError(t, l.Remove())
	_, err = memory.Open(memory.Options{Name: o.Name, Dir: o.Dir})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = memory.Look(o.Name, o.Dir)
	require.ErrorIs(t, err, segment.ErrForeign)
}

// TestLookFindsDamage: bytes that something else changed are no object for a reader, nor for ringcache tier verify.
func TestLookFindsDamage(t *testing.T) {
	ctx := t.Context()
	o := memory.Options{Name: "damaged", Dir: t.TempDir(), Size: 1 << 20}
	l, err := memory.Open(o)
	require.NoError(t, err)
	lease, err := l.Lease(ctx, tier.LeaseOptions{ID: "l"})
	require.NoError(t, err)
	small, large := tier.Key{Space: "s", Name: "small"}, tier.Key{Space: "s", Name: "large"}
	placed := lease.Reserve([]tier.Object{{Key: small, Size: 100}, {Key: large, Size: 100_000}})
	require.NoError(t, errors.Join(lease.Commit([]tier.Key{small, large})...))

	look := func() (damaged []string, corrupt int64) {
		r, err := memory.Look(o.Name, o.Dir)
		require.NoError(t, err)
		err = tier.Verify(ctx, r, "", func(o tier.Object, err error) error {
			if err != nil {
				require.ErrorIs(t, err, tier.ErrCorrupt)
				require.ErrorIs(t, err, tier.ErrNotFound)
				damaged = append(damaged, o.Name)
			}
			return nil
		})
		require.NoError(t, err)
		corrupt = r.Usage().Corrupt
		require.NoError(t, r.Close())
		return damaged, corrupt
	}
	damaged, corrupt := look()
	require.Empty(t, damaged)
	require.Zero(t, corrupt)
	placed[0].Bytes[99]++ // as a client would that writes where it must not
	damaged, corrupt = look()
	require.Equal(t, []string{"small"}, damaged)
	require.EqualValues(t, 1, corrupt)
	clear(placed[1].Bytes)
	for i := range placed[1].Bytes {
		placed[1].Bytes[i]++
	}
	damaged, corrupt = look()
	require.ElementsMatch(t, []string{"small", "large"}, damaged)
	require.EqualValues(t, 2, corrupt)
	lease.Release()
	require.NoError(t, l.Remove())
}

// TestFilesOfOthersStay: a file that has the name of a level's table of leases, and is something else, is not removed.
func TestFilesOfOthersStay(t *testing.T) {
	o := memory.Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20}
	path := filepath.Join(o.Dir, "level.leases")
	require.NoError(t, os.WriteFile(path, make([]byte, 8192), 0o600))
	_, err := memory.Open(o)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, path)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 8192), b)
	files, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "nothing else is left")
}

// TestTwoRecordsOfOneLease: no order of changes leaves two leases of one id, but damage may; one of them counts.
func TestTwoRecordsOfOneLease(t *testing.T) {
	o := memory.Options{Name: "level", Dir: t.TempDir(), Size: 1 << 20}
	l, err := memory.Open(o)
	require.NoError(t, err)
	_, err = l.Lease(t.Context(), tier.LeaseOptions{ID: "a", Owner: "old"})
	require.NoError(t, err)
	generation := l.Segment().Generation
	require.NoError(t, l.Close())
	table, err := leasetable.Open(o.Dir, o.Name, generation)
	require.NoError(t, err)
	table.Load()
	_, err = table.PutLease(leasetable.Lease{Serial: 99, ID: "a", Owner: "new"})
	require.NoError(t, err)
	require.NoError(t, table.Close())
	l, err = memory.Open(o)
	require.NoError(t, err)
	require.Len(t, l.Leases(), 1)
	require.Equal(t, "new", l.Leases()[0].Owner)
	require.NoError(t, l.CheckStructure())
	require.NoError(t, l.Remove())
}
