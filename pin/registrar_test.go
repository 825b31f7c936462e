package pin_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
)

func TestNopReportsThatNothingIsPinned(t *testing.T) {
	r, err := pin.Nop{}.Register(make([]byte, 4096), pin.RegisterOptions{})
	require.NoError(t, err)
	require.False(t, r.Pinned())
	require.NoError(t, r.Unregister())
	require.NoError(t, r.Unregister())
	require.False(t, r.Pinned())
}

func TestUnavailableIsUnsupported(t *testing.T) {
	require.ErrorIs(t, pin.ErrUnavailable, errors.ErrUnsupported)
	require.NotErrorIs(t, pin.ErrRegistered, pin.ErrUnavailable)
}
