package objstore

import (
	"context"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request that has ended begins again as a new one: it has nothing of its life before.
func TestRequestBeginsAgain(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 8192, MaxObjectSize: 4096, Readers: 1})
			r, err := s.Begin("first")
			require.NoError(t, err)
			require.ErrorIs(t, r.Begin("second"), fs.ErrInvalid, "it is open")
			for i := range 20 { // more than a few
				_, err := r.Put(jobKey(i), bytesItem(10), PutOptions{})
				require.NoError(t, err)
			}
			require.NoError(t, r.Commit())
			require.ErrorIs(t, r.Begin("second"), fs.ErrInvalid, "it is sent")
			r.Finish()
			require.True(t, r.Ended())

			other, err := s.Begin("second")
			require.NoError(t, err)
			require.ErrorIs(t, r.Begin("second"), fs.ErrInvalid, "another has the id")
			require.True(t, r.Ended())
			require.Equal(t, "first", r.ID())
			other.Rollback()

			require.NoError(t, r.Begin("second"))
			require.Equal(t, "second", r.ID())
			require.False(t, r.Ended())
			require.NoError(t, s.CheckStructure())
			holders := s.Holders()
			require.Len(t, holders, 1)
			require.Equal(t, "second", holders[0].ID)
			require.False(t, holders[0].Sent)
			require.Empty(t, holders[0].Keys)

			r.Rollback() // which would do nothing if it were still sent
			require.True(t, r.Ended())
			st, err := s.State()
			require.NoError(t, err)
			require.Zero(t, st.Leases)
			require.NoError(t, r.Begin("first"))
			_, err = r.Lookup(jobKey(0))
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			r.Abort()
			require.NoError(t, s.CheckStructure())
		})
	}
}

// What is under way in a request ends before it begins again.
func TestRequestWithAReservationDoesNotBeginAgain(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 8192, MaxObjectSize: 4096, Readers: 1})
			r, err := s.Begin("r")
			require.NoError(t, err)
			for _, end := range []func(*Reservation){
				(*Reservation).Discard,
				func(res *Reservation) {
					_, err := res.Commit()
					require.ErrorIs(t, err, ErrEnded)
					res.Discard()
				},
			} {
				res, err := r.Reserve("a", bytesItem(100), PutOptions{})
				require.NoError(t, err)
				r.Rollback()
				require.ErrorIs(t, r.Begin("r"), fs.ErrInvalid)
				require.ErrorContains(t, r.Begin("r"), "reservations")
				end(res)
				require.NoError(t, r.Begin("r"))
			}
			_, err = r.Put("a", bytesItem(100), PutOptions{})
			require.NoError(t, err)
			_, err = r.Put("a", bytesItem(100), PutOptions{})
			require.ErrorIs(t, err, ErrKeyExists)
			_, err = r.Put("large", bytesItem(1<<20), PutOptions{})
			require.Error(t, err)
			r.Rollback()
			require.NoError(t, r.Begin("r"), "a refused put leaves nothing")
			r.Rollback()
		})
	}
}

// Whoever waits for room in a request keeps it from beginning again until the wait has ended.
func TestRequestThatWaitsDoesNotBeginAgain(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 4096, MaxObjectSize: 4096, Readers: 1})
			full := begin(t, s, "full")
			_, err := full.Put("a", bytesItem(3500))
			require.NoError(t, err)
			r, err := s.Begin("r")
			require.NoError(t, err)
			ended := startWaiter(t, s, context.Background(), request{r}, "b", 3500, PutOptions{})
			r.Rollback()
			require.ErrorIs(t, <-ended, ErrEnded)
			require.NoError(t, r.Begin("r"))
			r.Rollback()
			full.Rollback()
		})
	}
}

// A value of Stored is valid until its owner ends the request, also if the readers were reset meanwhile.
func TestRequestWithAStoredValueDoesNotBeginAgain(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 8192, MaxObjectSize: 4096, Readers: 1})
			r, err := s.Begin("r")
			require.NoError(t, err)
			h, err := r.Put("a", bytesItem(100), PutOptions{})
			require.NoError(t, err)
			_, err = r.Stored(h)
			require.NoError(t, err)
			require.NoError(t, r.Commit())
			require.NoError(t, s.ResetReaders(0))
			require.True(t, r.Ended())
			require.ErrorIs(t, r.Begin("r"), fs.ErrInvalid)
			r.Finish()
			require.NoError(t, r.Begin("r"))
			r.Rollback()
		})
	}
}

// A pool's requests are its own: one of the store under it could put bytes that are no item.
func TestPoolBeginsOnlyItsOwnRequests(t *testing.T) {
	pool := reflect.TypeFor[*Pool]()
	for i := range pool.NumMethod() {
		if m := pool.Method(i); strings.HasPrefix(m.Name, "Begin") {
			require.Equal(t, reflect.TypeFor[func(*Pool, string) (Request, error)](), m.Type, m.Name)
		}
	}
}

// Ending a reservation twice does nothing, also while its request begins again.
func TestRequestBeginsAgainBesideALateDiscard(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			s := newStoreOf(t, k, Options{RingSize: 8192, MaxObjectSize: 4096, Readers: 1})
			r, err := s.Begin("r")
			require.NoError(t, err)
			res, err := r.Reserve("a", bytesItem(100), PutOptions{})
			require.NoError(t, err)
			_, err = res.Commit()
			require.NoError(t, err)
			r.Rollback()
			done := make(chan struct{})
			go func() {
				defer close(done)
				res.Discard()
			}()
			require.NoError(t, r.Begin("r"))
			<-done
			r.Rollback()
		})
	}
}
