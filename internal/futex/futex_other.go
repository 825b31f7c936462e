//go:build !linux || !(amd64 || arm64)

package futex

import (
	"sync/atomic"
	"time"
)

func wait(*atomic.Uint32, uint32, time.Duration) error { return ErrUnsupported }
func wake(*atomic.Uint32, int) error                   { return ErrUnsupported }
