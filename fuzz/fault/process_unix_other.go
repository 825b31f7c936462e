//go:build unix && !linux

package fault

import "errors"

func stopped(int) (bool, error) { return false, errors.ErrUnsupported }
