//go:build !linux

package engine

const canAwait = false

func awaitExit(int) {}
