package shmstore_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/shmstore"
)

// A segment without a sidecar, or of another size than the options, is refused, and no panic.
func TestAdoptRefusesAGivenSegmentThatIsNotOfTheOptions(t *testing.T) {
	o := shmstore.Options{Size: 4096, DataOffset: 32}
	bare, err := segment.Private(nil, segment.Options{RingSize: 4096, DataOffset: 32})
	require.NoError(t, err)
	other := o
	other.DataOffset = 64
	shifted, err := segment.Private(nil, other.SegmentOptions())
	require.NoError(t, err)
	for seg, want := range map[*segment.Segment]error{bare: segment.ErrForeign, shifted: segment.ErrSize} {
		o.Segment = seg
		_, _, err := shmstore.Adopt(o)
		require.ErrorIs(t, err, want)
	}
}

func TestAdopt(t *testing.T) {
	for _, align := range []int{64, 4096} {
		t.Run(fmt.Sprint(align), func(t *testing.T) {
			s, o := inFolder(t, shmstore.Options{Align: align, Format: "kv", Size: 128 << 10, QuarantineTTL: -1, FullSums: true})
			reader, err := shmstore.Open(o.Name, shmstore.ReaderOptions{Dir: o.Dir})
			require.NoError(t, err)
			r := begin(t, s, "r")
			res, err := r.Reserve("used", 5000, shmstore.PutOptions{Note: []byte("a note"), Tenant: "t"})
			require.NoError(t, err)
			copy(res.Bytes(), "used")
			used, err := res.Commit(1)
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			r.Abort()
			unused := idle(t, s, "idle", 3000, 5).Handle()
			damaged := idle(t, s, "damaged", 3000, 6).Handle()
			s.Segment().Bytes()[damaged.Offset+2999]++
			require.NoError(t, s.Detach())

			for name, change := range map[string]func(o *shmstore.Options){
				`"kv`:  func(o *shmstore.Options) { o.Format = "other" },
				"@128": func(o *shmstore.Options) { o.Align = 128 },
			} {
				bad := o
				change(&bad)
				_, _, err := shmstore.Adopt(bad)
				require.ErrorIs(t, err, fs.ErrInvalid)
				require.ErrorContains(t, err, name)
			}
			s, a, err := shmstore.Adopt(o)
			require.NoError(t, err)
			ends(t, s)
			require.Equal(t, shmstore.Adoption{Kept: 2, Dropped: 1, InUse: 1, Clean: true, Epoch: 2}, a)
			require.NoError(t, s.CheckStructure())
			next := begin(t, s, "next")
			o2, err := next.Lookup("used", 1)
			require.NoError(t, err)
			require.Equal(t, o2.Handle().Length, uint64(5000))
			require.Equal(t, "a note", string(o2.Note()))
			require.Equal(t, used.Handle().ID, o2.Handle().ID)
			next.Rollback()
			v, err := reader.Get(unused)
			require.NoError(t, err)
			require.Equal(t, bytes.Repeat([]byte{5}, 3000), v.Bytes())
			v.Release()
			_, err = reader.Get(damaged)
			require.ErrorIs(t, err, shmstore.ErrStale)
			gone, err := s.Evict("used")
			require.NoError(t, err)
			require.Empty(t, gone, "a request of the last writer may need it")
			s.Fence().Passed()
			freed, err := s.Evict()
			require.NoError(t, err)
			require.Len(t, freed, 2)
			require.NoError(t, reader.Close())
		})
	}
}
