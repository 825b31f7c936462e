package enginecore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
	"github.com/ringcache/ringcache/serde/enginecore"
)

// TestFieldsBehindAnAnswer: they are read also if the answer is longer than expected, or
// can't be read in its middle.
func TestFieldsBehindAnAnswer(t *testing.T) {
	for name, failure := range map[string]func(*codec.Encoder){
		"longer":  (*codec.Encoder).Nil,
		"damaged": func(e *codec.Encoder) { e.Int(5) },
	} {
		e := codec.NewEncoder(codec.DefaultThreshold)
		fields := pycompat.Newest().OutputsFields
		e.Array(len(fields))
		for _, field := range fields {
			switch field {
			case "engine_index":
				e.Int(1)
			case "outputs":
				e.Array(0)
			case "timestamp":
				e.Float(1.5)
			case "utility_output":
				e.Array(5)
				e.Uint(7)
				failure(e)
				e.Nil()
				e.Texts([]string{"more"})
				e.Int(9)
			case "finished_requests":
				e.Texts([]string{"r"})
			default:
				e.Nil()
			}
		}
		doc, err := e.Document()
		require.NoError(t, err)
		c, err := enginecore.New(enginecore.Options{})
		require.NoError(t, err)
		m, err := c.DecodeOutputs([][]byte{doc})
		require.NoError(t, err)
		require.Empty(t, m.Unread, name)
		require.EqualValues(t, 7, m.Answer.CallID)
		require.Equal(t, name == "damaged", m.Answer.Err != nil)
		require.Equal(t, []string{"r"}, m.FinishedRequests, name)
	}
}
