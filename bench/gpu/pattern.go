package main

import "encoding/binary"

// fill writes the pattern of a seed, which has no period: a byte of another place or another seed is found.
func fill(m []byte, seed uint64) {
	i := 0
	for ; i+8 <= len(m); i += 8 {
		binary.LittleEndian.PutUint64(m[i:], word(seed, i))
	}
	for ; i < len(m); i++ {
		m[i] = patternByte(seed, i)
	}
}

// differs returns the place of the first byte that is not of the seed's pattern, and -1 if there is none.
func differs(m []byte, seed uint64) int {
	for i := 0; i < len(m); i++ {
		if i%8 == 0 && i+8 <= len(m) && binary.LittleEndian.Uint64(m[i:]) == word(seed, i) {
			i += 7
			continue
		}
		if m[i] != patternByte(seed, i) {
			return i
		}
	}
	return -1
}

func patternByte(seed uint64, i int) byte { return byte(word(seed, i&^7) >> (8 * (i & 7))) }

// word returns the eight bytes at i, a multiple of 8, by the finalizer of SplitMix64.
func word(seed uint64, i int) uint64 {
	x := (seed<<32 + uint64(i)) * 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
