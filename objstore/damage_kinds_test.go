package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/fuzz/fault"
	mapfault "github.com/ringcache/ringcache/internal/fault"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/objstore/check"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring/segment"
)

// damageAllowed reports whether an error of a reader or an adopter is one for damaged bytes.
func damageAllowed(err error) bool {
	for _, fine := range []error{ErrCorrupt, ErrStale, ErrBadSignature, ErrNotCounted, segment.ErrSize, mapfault.ErrFault} {
		if errors.Is(err, fine) {
			return true
		}
	}
	return errors.As(err, new(*sidecar.FormatError)) || errors.Is(err, fs.ErrInvalid)
}

// guardedBytes is bytesBehind for a file that may be cut short: touching a view is a fault then.
func guardedBytes(r *Reader, h serde.Address, key string) (b []byte, err error) {
	v, err := r.Get(key, h)
	if err != nil {
		return nil, err
	}
	err = mapfault.Guard(func() error {
		b = bytes.Clone(v.Item().Elems[0].Data.(*serde.Tensor).Data)
		return nil
	})
	return b, errors.Join(err, v.Check(), v.Release())
}

// TestDamageOfEveryKind damages the segment and the sidecar of a dead writer by bits, words, pages, ranges and cuts, under
// a reader that has attached and for one that comes later, and for an adopter. Each call gives its own bytes
// or a typed error. What an adopter drops the checker has found.
func TestDamageOfEveryKind(t *testing.T) {
	for _, suffix := range []string{"", sidecar.Suffix} {
		for _, kind := range fault.Kinds() {
			t.Run(fmt.Sprintf("s%s/%v", suffix, kind), func(t *testing.T) {
				if raceEnabled && kind == fault.Truncate {
					t.Skip("under the race detector a fault inside an atomic ends the process (runtime/race_amd64.s)")
				}
				for seed := range uint64(6) {
					damageOfKind(t, suffix, kind, seed)
				}
			})
		}
	}
}

func damageOfKind(t *testing.T, suffix string, kind fault.Kind, seed uint64) {
	t.Helper()
	d := leave(t, seed%2 == 0)
	from, to := int64(0), int64(0)
	switch rng := rand.New(rand.NewPCG(seed, 9)); { // where something is, most of the time
	case suffix == "":
		to = 12 << 10
	case rng.IntN(2) == 0:
		from = int64(min(d.neededAt, d.other) / 64 * 64)
	}
	change, err := kind.Apply(d.segmentPath()+suffix, from, to, seed)
	require.NoError(t, err)

	look := func(r *Reader) {
		for key, h := range map[string]serde.Address{"needed": d.needed, "idle": d.idle} {
			b, err := guardedBytes(r, h, key)
			if err != nil {
				require.True(t, damageAllowed(err), "%v: %v", change, err)
			} else if suffix != "" { // nobody has written to the payload
				require.True(t, bytes.Equal(b, bytes.Repeat([]byte{key[0]}, len(b))), "%v", change)
			}
			if err := r.Touch(t.Context(), key, h); err != nil {
				require.True(t, damageAllowed(err), "%v: %v", change, err)
			}
		}
	}
	look(d.r)
	later, err := Open(d.o.Name, ReaderOptions{Dir: d.o.Dir, RingSize: d.o.RingSize, Readers: 1, SidecarLock: true})
	if err == nil {
		look(later)
		require.NoError(t, later.Close())
	} else {
		require.True(t, damageAllowed(err), "%v: %v", change, err)
	}
	rep, err := check.Segment(d.o.Name, check.Options{Dir: d.o.Dir})
	newer := (*sidecar.FormatError)(nil)
	if err != nil {
		require.ErrorAs(t, err, &newer, "%v", change)
	}
	w, a, err := adoptPool(d.o)
	if err != nil {
		require.True(t, damageAllowed(err), "%v: %v", change, err)
		if rep != nil {
			require.NotEmpty(t, rep.Findings, "%v: it can't be adopted: %v", change, err)
		}
		require.NoError(t, change.Undo()) // so that the reader's slot is there when it ends
		require.NoError(t, d.r.Close())
		for _, s := range []string{"", sidecar.Suffix} {
			require.NoError(t, os.Remove(d.segmentPath()+s))
		}
		return
	}
	if a.Dropped+a.Damaged > 0 {
		require.NotEmpty(t, rep.Findings, "%v: %+v", change, a)
	}
	require.NoError(t, w.CheckStructure(), "%v", change)
	for key, h := range map[string]serde.Address{"needed": d.needed, "idle": d.idle} {
		if b, err := guardedBytes(d.r, h, key); err == nil {
			require.True(t, bytes.Equal(b, bytes.Repeat([]byte{key[0]}, len(b))), "%v: other bytes after an adoption", change)
		} else {
			require.True(t, damageAllowed(err), "%v: %v", change, err)
		}
	}
	require.NoError(t, d.r.Close())
	require.NoError(t, w.Close())
}
