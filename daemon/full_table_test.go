//go:build linux

package daemon

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/daemon/wire"
)

// TestFullTableOfLeasesNamesTheSetting: an operator has no Options.
func TestFullTableOfLeasesNamesTheSetting(t *testing.T) {
	b := newBed(t, nil)
	p := b.hello(session1)
	p.store(b, "a")
	var names []string
	for i := range b.mo.MaxLeases + 1 {
		names = append(names, fmt.Sprint("lease-", i))
		q := wire.Request{Op: wire.Pin, Lease: names[i], Space: space, Names: []string{"a"}}
		if r := p.do(q); r.Error != nil {
			require.Equal(t, wire.KindBusy, r.Error.Kind)
			require.Contains(t, r.Error.Text, "max-leases")
			require.NotContains(t, r.Error.Text, "Options")
			p.release(names...)
			b.free()
			return
		}
	}
	require.Fail(t, "there was room for all")
}
