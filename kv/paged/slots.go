package paged

import "math"

// AppendSlots appends the slots of the tokens from start up to, and without, end of a request whose blocks are these,
// in the order of its tokens.
func AppendSlots(dst []int64, blocks []int64, blockTokens, start, end int) ([]int64, error) {
	if blockTokens < 1 || start < 0 || end < start {
		return nil, refuse("slots of the tokens %d to %d, in blocks of %d", start, end, blockTokens)
	}
	if end > 0 && (end-1)/blockTokens >= len(blocks) {
		return nil, refuse("%d blocks of %d tokens; the request has %d tokens", len(blocks), blockTokens, end)
	}
	for i, block := range blocks {
		if block < 0 || block > math.MaxInt64/int64(blockTokens)-1 {
			return nil, refuse("block %d of the request is number %d", i, block)
		}
	}
	for i := start; i < end; i++ {
		dst = append(dst, blocks[i/blockTokens]*int64(blockTokens)+int64(i%blockTokens))
	}
	return dst, nil
}
