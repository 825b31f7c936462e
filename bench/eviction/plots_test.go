package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChartsOfHitRates(t *testing.T) {
	results := make([]result, len(contenders))
	results[0], results[1] = result{hits: 0.5}, result{hits: 0.25}
	all := charts([]row{{workload: "RAG 2", gib: 1, results: results}, {workload: "RAG 2", gib: 4, results: results}})
	require.Contains(t, all, "hit-rate-rag-2")
	c := all["hit-rate-rag-2"]
	require.Len(t, c.Lines, 2, "what hit nothing has no line")
	assert.Equal(t, contenders[0].name, c.Lines[0].Label)
	assert.Len(t, c.Lines[0].Points, 2)
	assert.InDelta(t, 50.0, c.Lines[0].Points[1].Y, 1e-9)
}
