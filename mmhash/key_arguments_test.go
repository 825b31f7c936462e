package mmhash

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// A frontend makes the keys of all photos of a request from the same options, so making one must leave them as they are.
func TestKeyLeavesItsArgumentsAlone(t *testing.T) {
	for _, g := range pycompat.Releases() {
		t.Run(g.Version, func(t *testing.T) {
			h, err := NewHasher(Options{Generation: g})
			require.NoError(t, err)
			processor := []Entry{{"videos_kwargs", []Entry{{"fps", int64(2)}}}, {"images_kwargs", []Entry{{"size", int64(8)}}}, {"crop", true}}
			io := []Entry{{"video", []Entry{{"num_frames", int64(4)}}}, {"image", []Entry{{"mode", "RGB"}}}}
			id := Identity{ModelID: "org/model", Modality: "image", Item: keyItem(t, "image"), ProcessorKwargs: slices.Clone(processor), MediaIOKwargs: slices.Clone(io)}
			first, err := h.Key(id)
			require.NoError(t, err)
			require.Equal(t, processor, id.ProcessorKwargs)
			require.Equal(t, io, id.MediaIOKwargs)
			again, err := h.Key(id)
			require.NoError(t, err)
			require.Equal(t, first, again)
		})
	}
}
