//go:build !linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const (
	signalStop     = syscall.SIGKILL
	signalContinue = syscall.SIGKILL
	signalStacks   = syscall.SIGKILL
)

func startCommand(*exec.Cmd) error { return errors.ErrUnsupported }

func startDetached(*exec.Cmd) error { return errors.ErrUnsupported }

func signalProcess(*os.Process, syscall.Signal) {}
