package shmstore_test

import (
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmring"
	"github.com/ringcache/ringcache/shmstore"
)

func TestReservations(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10, MaxObjectSize: 8000})
	r := begin(t, s, "r")
	for what, f := range map[string]func() error{
		"empty": func() error { _, err := r.Reserve("", 10, shmstore.PutOptions{}); return err },
		"-1":    func() error { _, err := r.Reserve("a", -1, shmstore.PutOptions{}); return err },
	} {
		require.ErrorIs(t, f(), fs.ErrInvalid)
		require.ErrorContains(t, f(), what)
	}
	_, err := r.Reserve("a", 8001, shmstore.PutOptions{})
	var large *shmstore.TooLargeError
	require.ErrorAs(t, err, &large)
	require.Equal(t, &shmstore.TooLargeError{Size: 8001, Limit: 8000}, large)

	res, err := r.Reserve("a", 1000, shmstore.PutOptions{Note: []byte("note"), Tenant: "t", Cost: time.Second})
	require.NoError(t, err)
	require.Len(t, res.Bytes(), 1000)
	require.False(t, cached(s, "a"))
	_, err = begin(t, s, "other").Reserve("a", 10, shmstore.PutOptions{})
	var exists *shmstore.KeyError
	require.ErrorAs(t, err, &exists)
	require.Equal(t, &shmstore.KeyError{Key: "a", Err: shmstore.ErrKeyExists, Reserved: true}, exists)
	copy(res.Bytes(), "payload")
	res.SetCost(time.Minute)
	o, err := res.Commit(1)
	require.NoError(t, err)
	require.Equal(t, "note", string(o.Note()))
	require.Same(t, res.Object(), o)
	_, err = res.Commit(1)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "ended already")
	res.Discard() // nothing
	_, err = r.Reserve("a", 10, shmstore.PutOptions{})
	require.ErrorAs(t, err, &exists)
	require.Equal(t, &shmstore.KeyError{Key: "a", Err: shmstore.ErrKeyExists}, exists)

	for range 100 { // what was given up leaves nothing behind
		res, err := r.Reserve("b", 7000, shmstore.PutOptions{})
		require.NoError(t, err)
		res.Discard()
		res.Discard()
		_, err = res.Commit(1)
		require.ErrorIs(t, err, fs.ErrInvalid)
	}
	res, err = r.Reserve("late", 10, shmstore.PutOptions{})
	require.NoError(t, err)
	r.Rollback()
	_, err = res.Commit(1)
	require.ErrorIs(t, err, shmstore.ErrEnded)
	res.Discard()
	require.False(t, cached(s, "late"))
}

func TestFullStoreNamesWhatIsInTheWay(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10, MaxObjects: 6, Quotas: map[string]int64{"small": 2048}})
	r := begin(t, s, "r")
	put(t, r, "leased", 3000, 1)
	aborted := begin(t, s, "aborted")
	put(t, aborted, "quarantined", 2000, 1)
	require.NoError(t, aborted.Commit())
	aborted.Abort()
	res, err := r.Reserve("reserved", 4000, shmstore.PutOptions{})
	require.NoError(t, err)
	_, err = r.Put("large", make([]byte, 9000), shmstore.PutOptions{})
	var full *shmstore.FullError
	require.ErrorAs(t, err, &full)
	require.ErrorIs(t, err, shmring.ErrFull)
	require.Greater(t, full.Leased, int64(3000))
	require.Greater(t, full.Quarantined, int64(2000))
	require.Greater(t, full.Reserved, int64(4000))
	require.ErrorContains(t, err, "PutOptions.Wait")
	res.Discard()

	_, err = r.Put("t1", make([]byte, 1500), shmstore.PutOptions{Tenant: "small"})
	require.NoError(t, err)
	_, err = r.Put("t2", make([]byte, 1500), shmstore.PutOptions{Tenant: "small"})
	full = nil
	require.ErrorAs(t, err, &full)
	require.Equal(t, "small", full.Tenant)
	require.Equal(t, 2048, full.Size)
	_, err = r.Put("t3", make([]byte, 3000), shmstore.PutOptions{Tenant: "small"})
	var large *shmstore.TooLargeError
	require.ErrorAs(t, err, &large)
	require.Equal(t, "small", large.Tenant)

	for i := 0; ; i++ {
		if _, err = r.Put(fmt.Sprint(i), nil, shmstore.PutOptions{}); err != nil {
			break
		}
	}
	require.ErrorAs(t, err, &full)
	require.Equal(t, 6, full.MaxObjects)
	require.ErrorContains(t, err, "raise MaxObjects")
	r.Rollback()
	_, err = begin(t, s, "huge").Put("huge", make([]byte, 16<<10), shmstore.PutOptions{})
	require.ErrorAs(t, err, &large)
	require.True(t, large.Ring)
}
