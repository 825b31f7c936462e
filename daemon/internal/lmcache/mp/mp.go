// Package mp has the messages of LMCache's multiprocess protocol.
package mp

//go:generate go run -C ../../../../scripts/protogen . ../../daemon/internal/lmcache/mp/mp.proto
