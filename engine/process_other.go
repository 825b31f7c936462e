//go:build !linux

package engine

import "syscall"

const canAwait = false

func awaitExit(int) {}

func ownGroup(*syscall.SysProcAttr) {}

func killGroup(int) {}
