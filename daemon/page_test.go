//go:build linux

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/ringcache/ringcache/daemon/wire"
	"github.com/ringcache/ringcache/internal/wiredoc"
)

// TestServerAnswersThePage sends the requests of docs/daemon.md to a server, byte by byte, and compares the
// replies, but for what the page says varies. What is refused on the page is refused here, on connections of
// their own.
func TestServerAnswersThePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "daemon.md"))
	require.NoError(t, err)
	examples, err := wiredoc.Parse(string(text))
	require.NoError(t, err)
	b := newBed(t, func(b *bed) { b.mo.Size = 16 << 20 })
	p := b.dial()
	asked := 0
	for i, e := range examples {
		if i+1 == len(examples) || examples[i+1].Kind != wiredoc.Reply {
			continue
		}
		to := p
		if e.Kind == wiredoc.Refused {
			to = b.dial()
		}
		_, err := to.conn.Write(e.Frame)
		require.NoError(t, err)
		got, err := to.reader.Next()
		require.NoError(t, err, "line %d", e.Line)
		var reply wire.Reply
		require.NoError(t, wire.DecodeReply(got, &reply))
		want := examples[i+1]
		require.Equal(t, rest(t, want.Frame[4:], want.Varies), rest(t, got, want.Varies), "reply of line %d", want.Line)
		asked++
	}
	require.Greater(t, asked, 12)
	require.Empty(t, b.server.Leases(), "the page ends its leases")
}

// rest returns a message without the values that vary. What is 0 on one machine is left out there.
func rest(t *testing.T, body []byte, varies []string) any {
	var v any
	require.NoError(t, msgpack.Unmarshal(body, &v))
	for _, path := range varies {
		forget(v, strings.Split(path, "."))
	}
	return v
}

// forget deletes the values at a path, in all elements of lists.
func forget(v any, path []string) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			forget(e, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
		} else {
			forget(v[path[0]], path[1:])
		}
	}
}
