package engine

import (
	"context"
	"slices"

	"github.com/ringcache/ringcache/tier"
)

// Retrieve copies the KV of a request from the memory level straight into its slots. What only lower levels
// have is fetched into memory first: while some chunks are copied, the next ones are on their way. It returns
// the end of the last token that was loaded, counted from the first token of the request, and r.Skip if none
// was: LMCache's mask of the result is True from r.Skip up to there. It ends with the first chunk that is not
// there, or does not fit.
//
// After an error, slots behind that end may have been written to. So they may be if Retrieve returns no
// error: what is not loaded has to be computed.
func (e *Engine) Retrieve(ctx context.Context, r Request) (end int, err error) {
	if err := e.needLayered(false); err != nil {
		return 0, err
	}
	chunks, err := e.chunks(r, true)
	if err != nil || len(chunks) == 0 {
		return r.Skip, err
	}
	lease, err := e.lease(ctx)
	if err != nil {
		return r.Skip, err
	}
	defer lease.Release()
	end = r.Skip
	batches := slices.Collect(slices.Chunk(chunks, maxBatch))
	for i, some := range batches {
		if err := e.renew(lease); err != nil {
			return end, err
		}
		keys := e.keysOf(some, whole)
		placed, err := ask(ctx, func() []tier.Placed { return lease.PinPrefix(keys) })
		if err != nil {
			return end, err
		}
		n := e.fitting(some, placed)
		if n == len(some) && i+1 < len(batches) {
			lease.PinPrefix(e.keysOf(batches[i+1], whole)) // begins the fetches; the next turn looks at the answer
		}
		for j, c := range some[:n] {
			if err := e.o.Buffers.Scatter(r.Slots[c.start:c.end], placed[j].Bytes); err != nil {
				return end, err
			}
		}
		if err := held(lease); err != nil {
			return end, err
		}
		end = endOf(some[:n], end)
		if n < len(some) {
			break
		}
		lease.Unpin(keys)
	}
	return end, nil
}

// fitting returns how many chunks from the first one on are in memory and fit.
func (e *Engine) fitting(chunks []*chunk, placed []tier.Placed) int {
	n := 0
	for n < len(placed) && placed[n].Err == nil && e.fits(placed[n].Object, chunks[n], whole) {
		n++
	}
	return n
}
