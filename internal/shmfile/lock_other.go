//go:build !linux

package shmfile

import (
	"context"
	"os"
)

// TryLock is not supported here.
func TryLock(*os.File) (bool, error) { return false, ErrUnsupported }

// Locked is not supported here.
func Locked(*os.File) (bool, error) { return false, ErrUnsupported }

// WaitLock is not supported here.
func WaitLock(context.Context, *os.File) (func(), error) { return nil, ErrUnsupported }

// CheckPinnable is not supported here.
func CheckPinnable(*os.File) error { return ErrUnsupported }

// Unlock is not supported here.
func Unlock(*os.File) error { return ErrUnsupported }

// TryLockByte is not supported here.
func TryLockByte(*os.File, int64) (bool, error) { return false, ErrUnsupported }

// ByteLocked is not supported here.
func ByteLocked(*os.File, int64) (bool, error) { return false, ErrUnsupported }

// UnlockByte is not supported here.
func UnlockByte(*os.File, int64) error { return ErrUnsupported }

// CreateUnnamed is not supported here.
func CreateUnnamed(string, int64) (*os.File, error) { return nil, ErrUnsupported }

// Link is not supported here.
func Link(*os.File, string) error { return ErrUnsupported }

// Identity is not supported here.
func Identity(*os.File) (dev, ino uint64, err error) { return 0, 0, ErrUnsupported }
