//go:build !unix

package main

import "time"

// ownCPU is not measured on this system, where no segment can be made either.
func ownCPU() time.Duration { return 0 }
