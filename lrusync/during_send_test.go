package lrusync_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/lrusync"
)

// Renew while a request is being sent that pushes the key out, then a repair.
func TestRenewSurvivesARepairDuringASend(t *testing.T) {
	s := newSender(t, 15)
	ta, err := s.Send(carried("a"), queue)
	require.NoError(t, err)
	_, err = s.Send(carried("b"), func(lrusync.Ticket) error { // pushes a out
		s.Renew("a")
		require.True(t, s.Repair(lrusync.Drift{Sender: ta.Sender, Epoch: ta.Epoch, Contents: []lrusync.KeySize{{Key: "a", Size: 10}}}))
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, s.Cached("a"), "its data was to be sent again")
}

func TestMissedKeepsNoSliceOfItsCaller(t *testing.T) {
	s := newSender(t, 100)
	ta, err := s.Send(carried("a"), queue)
	require.NoError(t, err)
	keys := []string{"a"}
	_, err = s.Send(carried("b"), func(lrusync.Ticket) error {
		s.Missed(ta.Envelope, keys)
		keys[0] = "z" // Missed has returned: the slice is ours
		return errors.New("socket closed")
	})
	require.Error(t, err)
	require.Equal(t, []bool{false}, s.Cached("a"))
}
