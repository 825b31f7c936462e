//go:build unix

package main

import (
	"io/fs"
	"syscall"
)

// blocks returns the bytes that a file takes, which are fewer than its size if it has holes.
func blocks(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }
