package goldentest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/pycompat"
)

// TestItemForms: each form is there once, by its newest release.
func TestItemForms(t *testing.T) {
	newest := map[pycompat.ItemForm]*pycompat.Generation{}
	for _, g := range pycompat.Releases() {
		newest[g.ItemForm] = g
	}
	forms := ItemForms()
	require.Len(t, forms, len(newest))
	for _, g := range forms {
		require.Same(t, newest[g.ItemForm], g)
	}
	require.Same(t, pycompat.Newest(), forms[len(forms)-1])
}
