package lrusync_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
)

// While a request is being sent, and from within its enqueue, everything but
// sending works; that waits until its context ends.
func TestEnqueueMayAskTheSender(t *testing.T) {
	s := newSender(t, 100)
	_, err := s.Send(ctx, carried("a"), queue)
	require.NoError(t, err)
	_, err = s.Send(ctx, carried("b"), func(lrusync.Ticket) error {
		require.Equal(t, []bool{true}, cached(s, "a"))
		_, _, ok := s.Lookup("a")
		require.True(t, ok)
		_, size := s.Contents()
		require.EqualValues(t, 20, size)
		require.EqualValues(t, 1, s.Stats().Total, "of what was sent")
		require.NoError(t, s.CheckStructure())
		short, cancel := context.WithCancel(ctx)
		cancel()
		_, err := s.Send(short, carried("c"), queue)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, s.Clear(short, func(lrusync.Envelope) error { return nil }), context.Canceled)
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 2, s.Stats().Total)
	_, err = s.Send(ctx, carried("c"), queue)
	require.NoError(t, err)
}

// Who waits for its turn behind an enqueue that does not return gives up with its
// context.
func TestSendGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender(t, 100)
		blocked := make(chan struct{})
		first := make(chan error, 1)
		go func() {
			_, err := s.Send(ctx, carried("a"), func(lrusync.Ticket) error { <-blocked; return nil })
			first <- err
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := s.Send(short, carried("b"), queue)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, s.Clear(short, func(lrusync.Envelope) error { return nil }), context.DeadlineExceeded)
		close(blocked)
		require.NoError(t, <-first)
		require.Equal(t, []bool{true, false}, cached(s, "a", "b"))
	})
}

// What the peer reported while a request was being sent is not forgotten when that
// request turns out not to have been sent, nor when it was.
func TestChangesDuringASendSurviveIt(t *testing.T) {
	for name, failure := range map[string]error{"sent": nil, "failed": errors.New("socket closed")} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, 100)
			var at lrusync.Envelope
			for _, k := range []string{"renewed", "missed", "kept"} {
				ticket, err := s.Send(ctx, carried(k), queue)
				require.NoError(t, err)
				at = ticket.Envelope
			}
			_, err := s.Send(ctx, carried("new"), func(lrusync.Ticket) error {
				s.Renew("renewed")
				s.Missed(at, []string{"missed"})
				return failure
			})
			require.ErrorIs(t, err, failure)
			require.Equal(t, []bool{false, false, true, failure == nil}, cached(s, "renewed", "missed", "kept", "new"))
			_, err = s.Send(ctx, []lrusync.Item{{Key: "renewed"}, {Key: "missed"}}, queue)
			var need *lrusync.NeedDataError
			require.ErrorAs(t, err, &need)
			require.Equal(t, []string{"renewed", "missed"}, need.Keys)
		})
	}
}

// A repair while a request is being sent wins: the peer does not cache that
// request, whose epoch is over.
func TestRepairDuringASend(t *testing.T) {
	for name, failure := range map[string]error{"sent": nil, "failed": errors.New("socket closed")} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, 100)
			first, err := s.Send(ctx, carried("a"), queue)
			require.NoError(t, err)
			_, err = s.Send(ctx, carried("b"), func(at lrusync.Ticket) error {
				require.True(t, s.Repair(lrusync.Drift{Sender: at.Sender, Epoch: at.Epoch, Contents: []lrusync.KeySize{{Key: "a", Size: 10}}}))
				return failure
			})
			require.ErrorIs(t, err, failure)
			require.Equal(t, []bool{true, false}, cached(s, "a", "b"))
			next, err := s.Send(ctx, carried("c"), queue)
			require.NoError(t, err)
			require.Equal(t, first.Epoch+1, next.Epoch)
			require.Zero(t, next.Seq)
		})
	}
}

func TestNilEnqueueIsAnError(t *testing.T) {
	s := newSender(t, 100)
	_, err := s.Send(ctx, carried("a"), nil)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "enqueue is nil")
	err = s.Clear(ctx, nil)
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.ErrorContains(t, err, "enqueue is nil")
}

// Renew while a request is being sent that pushes the key out, then a repair.
func TestRenewSurvivesARepairDuringASend(t *testing.T) {
	s := newSender(t, 15)
	ta, err := s.Send(ctx, carried("a"), queue)
	require.NoError(t, err)
	_, err = s.Send(ctx, carried("b"), func(lrusync.Ticket) error { // pushes a out
		s.Renew("a")
		require.True(t, s.Repair(lrusync.Drift{Sender: ta.Sender, Epoch: ta.Epoch, Contents: []lrusync.KeySize{{Key: "a", Size: 10}}}))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, cached(s, "a"), "its data was to be sent again")
}

func TestMissedKeepsNoSliceOfItsCaller(t *testing.T) {
	s := newSender(t, 100)
	ta, err := s.Send(ctx, carried("a"), queue)
	require.NoError(t, err)
	keys := []string{"a"}
	_, err = s.Send(ctx, carried("b"), func(lrusync.Ticket) error {
		s.Missed(ta.Envelope, keys)
		keys[0] = "z" // Missed has returned: the slice is ours
		return errors.New("socket closed")
	})
	require.EqualError(t, err, "socket closed")
	require.Equal(t, []bool{false}, cached(s, "a"))
}
