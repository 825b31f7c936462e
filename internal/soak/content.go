package main

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// The bytes of an object are a stream that its key and its nonce, a number which no other
// object has, determine: splitmix64, word by word, so that any part can be made by itself.
// reader.py has the same stream.

func contentSeed(key string, nonce uint64) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return h.Sum64() ^ nonce
}

func contentWord(seed uint64, i int) uint64 {
	x := seed + uint64(i+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fillContent writes the part of a stream that begins at byte at, a multiple of 8.
func fillContent(b []byte, seed uint64, at int) {
	i := at / 8
	for ; len(b) >= 8; i++ {
		binary.LittleEndian.PutUint64(b, contentWord(seed, i))
		b = b[8:]
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], contentWord(seed, i))
	copy(b, last[:])
}

// checkContent compares the part of a stream that begins at byte at, a multiple of 8.
func checkContent(b []byte, seed uint64, at int) error {
	for i := 0; i < len(b); i += 8 {
		var want [8]byte
		binary.LittleEndian.PutUint64(want[:], contentWord(seed, (at+i)/8))
		part := b[i:min(i+8, len(b))]
		if string(part) != string(want[:len(part)]) {
			return wrongBytes(fmt.Sprintf("at byte %d: % x, want % x", at+i, part, want[:len(part)]))
		}
	}
	return nil
}

// wrongBytes is the error of bytes that are not the object's.
type wrongBytes string

func (w wrongBytes) Error() string { return "wrong bytes " + string(w) }
