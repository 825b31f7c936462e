package sentinel_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/engine"
	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/lrusync/upstream"
	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/mmhash"
	"github.com/ringcache/ringcache/objstore"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde"
	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmring/memory"
	"github.com/ringcache/ringcache/shmring/segment"
)

// TestErrorsMatchAcrossPackages lists for each exported sentinel which others it
// matches. A user of a package needs no other one to recognise its errors; but for mmcache,
// whose segments have the errors of objstore.
func TestErrorsMatchAcrossPackages(t *testing.T) {
	// Errors in one row match each other, and nothing else but what is in more.
	rows := []struct {
		name string
		errs []error
		more error
	}{
		{"busy", []error{segment.ErrBusy, sidecar.ErrBusy, objstore.ErrBusy}, nil},
		{"no space", []error{segment.ErrNoSpace}, nil},
		{"unsafe", []error{segment.ErrUnsafe}, nil},
		{"foreign", []error{segment.ErrForeign}, nil},
		{"owned", []error{segment.ErrOwned}, nil},
		{"wrong size", []error{segment.ErrSize}, nil},
		{"memory", []error{memory.ErrMissing}, nil},
		{"system", []error{shmfile.ErrUnsupported}, errors.ErrUnsupported},
		{"full", []error{shmring.ErrFull, objstore.ErrFull}, nil},
		{"corrupt chunk", []error{shmring.ErrCorrupt, objstore.ErrCorrupt}, nil},
		{"chunk too large", []error{shmring.ErrTooLarge, objstore.ErrTooLarge}, nil},
		{"stale", []error{objstore.ErrStale}, nil},
		{"signature", []error{objstore.ErrBadSignature}, nil},
		{"key exists", []error{objstore.ErrKeyExists}, nil},
		{"key not found", []error{objstore.ErrNotFound}, nil},
		{"not counted", []error{objstore.ErrNotCounted}, nil},
		{"store's request", []error{objstore.ErrEnded}, nil},
		{"cache's request", []error{mmcache.ErrEnded}, nil},
		{"corrupt message", []error{serde.ErrCorrupt}, nil},
		{"unsupported data", []error{serde.ErrUnsupported}, nil},
		{"no hash", []error{mmhash.ErrUnsupported}, nil},
		{"value too large", []error{lrusync.ErrTooLarge}, nil},
		{"hang", []error{lrusync.ErrHang}, nil},
		{"miss", []error{upstream.ErrMiss}, nil},
		{"version", []error{pycompat.ErrUnknownVersion}, nil},
		{"refused", []error{engine.ErrRefused}, nil},
		{"dead", []error{engine.ErrDead}, nil},
		{"not running", []error{engine.ErrNotRunning}, nil},
		{"asleep", []error{engine.ErrAsleep}, nil},
	}
	for i, row := range rows {
		for _, err := range row.errs {
			made := fmt.Errorf("%w: of a test", err)
			for j, other := range rows {
				for _, target := range other.errs {
					if i == j {
						require.ErrorIs(t, made, target, row.name)
					} else {
						require.NotErrorIs(t, made, target, "%s and %s", row.name, other.name)
					}
				}
			}
			for _, target := range []error{fs.ErrInvalid, fs.ErrClosed, fs.ErrExist, fs.ErrNotExist} {
				if target == row.more {
					require.ErrorIs(t, made, target, row.name)
				} else {
					require.NotErrorIs(t, made, target, row.name)
				}
			}
		}
	}
}

// The errors as they arise, and not only the sentinels.
func TestErrorsOfCallsMatch(t *testing.T) {
	dir := t.TempDir()
	o := mmcache.Options{Capacity: 1 << 20, Shared: mmcache.SharedOptions{Name: "segment", Dir: dir, Readers: 1}}
	c, err := mmcache.OpenShared(o)
	require.NoError(t, err)
	_, err = mmcache.OpenShared(o)
	require.ErrorIs(t, err, fs.ErrExist)
	r, err := c.Begin(t.Context(), "r")
	require.NoError(t, err)
	require.ErrorIs(t, c.Close(), objstore.ErrBusy)
	r.Rollback()
	require.NoError(t, c.Close())
	_, err = c.State()
	require.ErrorIs(t, err, fs.ErrClosed)

	_, err = objstore.Open("segment", objstore.ReaderOptions{Dir: dir, RingSize: 1 << 20, Readers: 1})
	require.ErrorIs(t, err, fs.ErrNotExist)

	_, err = serde.NewPlan(&serde.Tensor{DType: "uint8", Shape: []int{3}, Data: []byte{1}}, serde.Options{})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.NotErrorIs(t, err, sentinel.New(sentinel.Closed, ""))
}
