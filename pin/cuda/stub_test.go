//go:build !linux || !cgo || !(amd64 || arm64) || nocuda

package cuda_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pin"
	"github.com/ringcache/ringcache/pin/cuda"
)

// A program that can't load libraries finds no driver, whatever the machine has.
func TestProgramThatCannotLoadLibraries(t *testing.T) {
	d, err := cuda.Open(0, cuda.Options{})
	require.Nil(t, d)
	require.ErrorIs(t, err, pin.ErrUnavailable)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Regexp(t, `built without cgo, or with the tag nocuda: build with CGO_ENABLED=1|not supported on \w+/\w+`, err.Error())

	_, err = cuda.Open(-1, cuda.Options{})
	require.ErrorIs(t, err, fs.ErrInvalid, "a mistake of the caller is found all the same")
	require.NotErrorIs(t, err, pin.ErrUnavailable)
}
