package sidecar

// useTables has, for each of the 12 bytes of which the check of a use word is taken, what a value
// of the byte contributes to the checksum. An object's use changes with every hit, and the function of
// hash/crc32 takes 18 ns for so few bytes, and an allocation, since its argument escapes; the
// sum of 12 contributions takes 7.
var useTables = func() (t [12][256]uint32) {
	for v := range 256 {
		sum := castagnoli[v]
		t[11][v] = sum
		for i := 10; i >= 0; i-- { // one more byte of 0 behind it
			sum = castagnoli[byte(sum)] ^ sum>>8
			t[i][v] = sum
		}
	}
	return t
}()

// checkUse returns the checksum (CRC-32C) of 12 bytes: a use word and the number of its entry.
func checkUse(use uint64, entry uint32) uint32 {
	t := &useTables
	use ^= 0xffff_ffff // with which the checksum begins
	sum := t[0][byte(use)] ^ t[1][byte(use>>8)] ^ t[2][byte(use>>16)] ^ t[3][byte(use>>24)] ^
		t[4][byte(use>>32)] ^ t[5][byte(use>>40)] ^ t[6][byte(use>>48)] ^ t[7][byte(use>>56)] ^
		t[8][byte(entry)] ^ t[9][byte(entry>>8)] ^ t[10][byte(entry>>16)] ^ t[11][byte(entry>>24)]
	return ^sum
}

// sealUse adds the check to the use word of entry i: 30 bits of a checksum of the word
// and i.
// See docs/decisions.md, "Words of the sidecar check themselves".
func (t *table) sealUse(i int, use uint64) uint64 {
	use &^= useCheck
	return use | uint64(checkUse(use, uint32(i)))<<32&useCheck
}
