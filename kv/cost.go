package kv

import "time"

// What a layer computes for a token, in floating-point operations, and how fast. A forward pass takes 2 operations for
// each weight, and 4 for each element of a query and each token in front: the two products of attention (Chowdhery et
// al., "PaLM", 2022, appendix B, whose 6N+12LHQT are of training, three times a forward pass). The model is Llama 3 8B
// (8.0e9 weights, 32 layers of 4096 elements), the rate that of an H100 at 40 % of its 989e12 operations in bfloat16,
// as in the training of Llama 3 (Grattafiori et al., 2024, table 4: 38 to 43 %).
const (
	layerFLOPs    = 2 * 8.0e9 / 32
	positionFLOPs = 4 * 4096
	flopsPerNano  = 0.4 * 989e12 / 1e9
)

// Cost estimates the time to compute the KV of a chunk of a group again, for which all tokens in front of it
// are there. The work of a token grows with its position, since it attends to all tokens in front, or to
// those in its window: behind 30,000 tokens a chunk costs twice what the first one does. Only how such costs
// compare matters to who evicts by them, and a layout does not tell the width of the model nor its device:
// they are those of one model, layer by layer.
func (l Layout) Cost(group, chunk int) time.Duration {
	g := l.Groups[group]
	tokens := float64(l.ChunkTokens)
	before := (float64(chunk) + 0.5) * tokens // of a token, in the mean
	switch {
	case g.Recurrent:
		before = 0 // the state stands for all of them
	case g.Window > 0:
		before = min(before, float64(g.Window)*tokens)
	}
	nanos := tokens * float64(g.Layers) * (layerFLOPs + positionFLOPs*before) / flopsPerNano
	return time.Duration(min(nanos, float64(time.Hour))) // a layout of a hostile client may have 2^30 layers
}
