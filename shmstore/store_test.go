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

func TestPayloadsAreFoundByOffsetAndLength(t *testing.T) {
	for _, align := range []int{0, 64, 128, 512, 4096} {
		for _, offset := range []int{0, 32, 100} {
			t.Run(fmt.Sprintf("align %d, %d bytes in front", align, offset), func(t *testing.T) {
				s, o := inFolder(t, shmstore.Options{Align: align, DataOffset: offset, Size: 128 << 10})
				other, err := segment.Attach(segment.Options{Name: o.Name, Dir: o.Dir, RingSize: o.Size, DataOffset: offset, ReadOnly: true})
				require.NoError(t, err)
				r := begin(t, s, "r")
				for i, n := range []int{0, 1, 63, 64, 4000, 4096, 10_000} {
					h := put(t, r, fmt.Sprint(n), n, byte(i)).Handle()
					require.EqualValues(t, n, h.Length)
					require.Zero(t, h.Offset%uint64(max(align, 64)))
					require.Equal(t, bytes.Repeat([]byte{byte(i)}, n), other.Bytes()[h.Offset:h.Offset+h.Length])
				}
				require.NoError(t, s.CheckStructure())
				r.Rollback()
				require.NoError(t, other.Close())
			})
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := shmstore.Options{Size: 1 << 16}
	s := private(t, good)
	require.NoError(t, s.CheckStructure())
	for name, change := range map[string]func(*shmstore.Options){
		"Align":         func(o *shmstore.Options) { o.Align = 32 },
		"Align 96":      func(o *shmstore.Options) { o.Align = 96 },
		"Align 8192":    func(o *shmstore.Options) { o.Align = 8192 },
		"Size":          func(o *shmstore.Options) { o.Size = 8 },
		"DataOffset":    func(o *shmstore.Options) { o.DataOffset = -1 },
		"MaxObjectSize": func(o *shmstore.Options) { o.MaxObjectSize = 1<<16 + 1 },
		"MaxObjects":    func(o *shmstore.Options) { o.MaxObjects = -1 },
		"FirstID":       func(o *shmstore.Options) { o.FirstID = 1 << 31 },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			change(&o)
			_, err := shmstore.Create(o)
			require.ErrorIs(t, err, fs.ErrInvalid)
			require.ErrorContains(t, err, name)
		})
	}
}

func TestCreateRefusesASegmentOfAnotherSize(t *testing.T) {
	o := shmstore.Options{Size: 4096}
	seg, err := segment.Private(make([]byte, 8192), segment.Options{RingSize: 8192})
	require.NoError(t, err)
	o.Segment = seg
	_, err = shmstore.Create(o)
	require.ErrorIs(t, err, segment.ErrSize)
	require.NotErrorIs(t, err, fs.ErrInvalid)
}
