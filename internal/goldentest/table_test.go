package goldentest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/goldentest"
	"github.com/ringcache/ringcache/pycompat"
)

type tests func()

func (f tests) Run() int { f(); return 0 }

func TestReadOnlyTable(t *testing.T) {
	g, err := pycompat.Lookup("0.27.1")
	require.NoError(t, err)
	was := *g
	name := g.RequestFields[0]
	restore := func() { *g, g.RequestFields[0] = was, name }
	t.Cleanup(restore)

	require.Zero(t, goldentest.ReadOnlyTable(tests(func() {})).Run())
	for what, alter := range map[string]func(){
		"a field": func() { g.Signed = true },
		"a rule":  func() { g.Hash.Framed = true },
		"a name":  func() { g.RequestFields[0] = "id" },
		"a list":  func() { g.Params.LoRA = nil },
	} {
		t.Run(what, func(t *testing.T) {
			t.Cleanup(restore)
			require.Equal(t, 1, goldentest.ReadOnlyTable(tests(alter)).Run())
		})
	}
}
