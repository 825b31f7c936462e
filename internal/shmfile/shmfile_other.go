//go:build !linux

package shmfile

import "os"

// CheckSpace is not supported here.
func CheckSpace(string, int64) error { return ErrUnsupported }

// CheckRoom is not supported here.
func CheckRoom(string, int64) error { return ErrUnsupported }

// Open is not supported here.
func Open(string, bool) (*os.File, int64, error) { return nil, 0, ErrUnsupported }

// Same is not supported here.
func Same(*os.File, string) bool { return false }

// Map is not supported here.
func Map(*os.File, int64, bool) ([]byte, error) { return nil, ErrUnsupported }

// Unmap is not supported here.
func Unmap([]byte) error { return ErrUnsupported }

// MountOfDir is not supported here.
func MountOfDir(string) (Mount, bool) { return Mount{}, false }
