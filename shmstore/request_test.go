package shmstore_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/shmstore"
)

// A request begins in the memory of one that has ended, with its readers or by its owner, and in no other.
func TestRequestBeginsInMemoryOfAnEndedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, other := private(t, shmstore.Options{Size: 16 << 10}), private(t, shmstore.Options{Size: 16 << 10})
		var r shmstore.Request
		first := shmstore.RequestOptions{ID: "r"}
		require.NoError(t, r.BeginIn(s, first))
		put(t, &r, "a", 1000, 1)
		require.ErrorIs(t, r.BeginIn(s, shmstore.RequestOptions{ID: "again"}), fs.ErrInvalid, "it is open")
		r.Rollback()
		require.True(t, r.Ended())
		require.ErrorIs(t, r.BeginIn(other, first), fs.ErrInvalid, "it is of another store")

		require.NoError(t, r.BeginIn(s, shmstore.RequestOptions{ID: "again"}))
		require.False(t, r.Ended())
		o, err := r.Lookup("a", 0)
		require.NoError(t, err)
		_, err = r.Bytes(o)
		require.NoError(t, err)
		require.NoError(t, r.Commit())
		require.NoError(t, s.ResetReaders(1))
		require.True(t, r.Ended())
		require.ErrorIs(t, r.BeginIn(s, shmstore.RequestOptions{ID: "third"}), fs.ErrInvalid, "its owner has bytes")
		r.Finish()
		require.NoError(t, r.BeginIn(s, shmstore.RequestOptions{ID: "third"}))
		r.Rollback()
		require.NoError(t, s.CheckStructure())
		require.NoError(t, s.Close())
		require.ErrorIs(t, r.BeginIn(s, shmstore.RequestOptions{ID: "late"}), fs.ErrClosed)
	})
}

func TestRequestKeepsWhatItHas(t *testing.T) {
	s, _ := inFolder(t, shmstore.Options{Size: 8 << 10})
	r := begin(t, s, "r")
	_, err := s.Begin(shmstore.RequestOptions{ID: "r"})
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, `"r" is open`)
	put(t, r, "kept", 1000, 7)
	require.NoError(t, r.Commit())
	for i := range 50 {
		idle(t, s, fmt.Sprint(i), 3000, 9)
		require.NoError(t, s.CheckStructure())
	}
	other := begin(t, s, "other")
	o, err := other.Lookup("kept", 0)
	require.NoError(t, err)
	require.Equal(t, "kept", o.Key())
	r.Finish()
	require.True(t, r.Ended())
	gone, err := s.Evict("kept")
	require.NoError(t, err)
	require.Empty(t, gone, "the other has it")
	b, err := other.Bytes(o)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{7}, 1000), b)
	other.Rollback()
	gone, err = s.Evict("kept")
	require.NoError(t, err)
	require.NotEmpty(t, gone)
	_, err = begin(t, s, "late").Lookup("kept", 1)
	var missing *shmstore.KeyError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, shmstore.KeyError{Key: "kept", Err: shmstore.ErrNotFound}, *missing)
}

func TestRequestsThatHaveEndedTakeNothing(t *testing.T) {
	s := private(t, shmstore.Options{Size: 8 << 10})
	keep := begin(t, s, "keep")
	o := put(t, keep, "a", 10, 1)
	for name, end := range map[string]func(r *shmstore.Request){
		"rolled back": (*shmstore.Request).Rollback,
		"finished":    func(r *shmstore.Request) { _ = r.Commit(); r.Finish() },
		"aborted":     func(r *shmstore.Request) { _ = r.Commit(); r.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, s, name)
			end(r)
			end(r)
			_, lookup := r.Lookup("a", 1)
			_, hold := r.HoldID(o.Handle().ID)
			_, reserve := r.Reserve("b", 10, shmstore.PutOptions{})
			_, object := r.Object(o.Handle())
			_, b := r.Bytes(o)
			for _, err := range []error{lookup, hold, reserve, object, b, r.Commit(), r.SetUses(o.Handle(), 1)} {
				require.ErrorIs(t, err, shmstore.ErrEnded)
				require.ErrorContains(t, err, name)
			}
			r.Drop("a")
		})
	}
	st, err := s.Stats()
	require.NoError(t, err)
	require.Equal(t, 1, st.Requests)
	require.Zero(t, st.Misused)
	keep.Finish()
	keep.Abort()
	st, err = s.Stats()
	require.NoError(t, err)
	require.Equal(t, 2, st.Misused)
	require.False(t, keep.Ended())
	keep.Rollback()
}

// Who waits for room gets what a request had that ends meanwhile.
func TestEndMakesRoomForWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := private(t, shmstore.Options{Size: 8 << 10})
		r := begin(t, s, "r")
		put(t, r, "a", 6000, 1)
		time.AfterFunc(time.Second, r.Rollback)
		waits := begin(t, s, "waits")
		defer waits.Rollback()
		_, err := waits.Put("b", make([]byte, 6000), shmstore.PutOptions{})
		var full *shmstore.FullError
		require.ErrorAs(t, err, &full)
		require.Greater(t, full.Leased, int64(6000))
		began := time.Now()
		_, err = waits.Put("b", make([]byte, 6000), shmstore.PutOptions{Wait: context.Background()})
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), time.Second)
	})
}

func TestDropGivesUpOneKey(t *testing.T) {
	s := private(t, shmstore.Options{Size: 16 << 10})
	r := begin(t, s, "r")
	a := put(t, r, "a", 1000, 1)
	put(t, r, "b", 1000, 2)
	r.Drop("b")
	_, err := r.Object(a.Handle())
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, s.Holders()[0].Keys)
	gone, err := s.Evict("b")
	require.NoError(t, err)
	require.NotEmpty(t, gone)
	require.NoError(t, r.Commit())
	r.Drop("a") // too late
	gone, err = s.Evict("a")
	require.NoError(t, err)
	require.Empty(t, gone)
	r.Finish()
}
