package disk

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/tier"
)

// ofTenant puts an object of one block.
func ofTenant(l *Level, tenant, name, parent string) error {
	o := objectOf(name, 100)
	o.Tenant, o.Parent = tenant, parent
	return put(l, o, content(name, 100))
}

// A tenant at its quota pays with its own objects, the end of a chain first, and others lose nothing.
func TestQuotaOfATenant(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Quotas: map[string]int64{"a": 4 * 4096}, Quota: 2 * 4096})
	for i := range 4 {
		parent := ""
		if i > 0 {
			parent = fmt.Sprint("a", i-1)
		}
		require.NoError(t, ofTenant(l, "a", fmt.Sprint("a", i), parent))
		require.NoError(t, ofTenant(l, "b", fmt.Sprint("b", i), ""))
		require.NoError(t, ofTenant(l, "", fmt.Sprint("free ", i), ""))
	}
	require.Equal(t, map[string]int64{"a": 4 * 4096, "b": 2 * 4096}, l.Usage().Tenants)
	require.ErrorIs(t, ofTenant(l, "a", "a4", "a3"), tier.ErrFull, "only its ancestors could go")
	require.ErrorContains(t, ofTenant(l, "a", "a4", "a3"), `the quota of the tenant "a" is 16.0 KiB`)
	require.NoError(t, ofTenant(l, "a", "other", ""))
	requireMiss(t, stat(l, "a3"))
	for i := range 4 {
		if i < 3 {
			require.NoError(t, stat(l, fmt.Sprint("a", i)))
		}
		require.NoError(t, stat(l, fmt.Sprint("free ", i)))
	}
	large := objectOf("large", 3*4096)
	large.Tenant = "b"
	err := put(l, large, content("large", 3*4096))
	require.ErrorIs(t, err, tier.ErrTooLarge)
	require.ErrorContains(t, err, `the quota of the tenant "b" is 8192 bytes`)
}

// A lower quota holds from the next Put of the tenant on, also in a folder that was opened with one.
func TestQuotasChange(t *testing.T) {
	dir := t.TempDir()
	l := ready(t, dir, Options{Layout: noFolders{}})
	for i := range 10 {
		require.NoError(t, ofTenant(l, "a", fmt.Sprint(i), ""))
	}
	l.SetQuotas(map[string]int64{"a": 5 * 4096}, 0)
	require.EqualValues(t, 10*4096, l.Usage().Tenants["a"])
	require.NoError(t, ofTenant(l, "a", "10", ""))
	require.EqualValues(t, 5*4096, l.Usage().Tenants["a"])
	require.NoError(t, l.Close())
	l = ready(t, dir, Options{Layout: noFolders{}, Quota: 3 * 4096})
	require.NoError(t, ofTenant(l, "a", "11", ""))
	require.EqualValues(t, 3*4096, l.Usage().Tenants["a"])
	l.SetQuotas(nil, 0)
	for i := range 10 {
		require.NoError(t, ofTenant(l, "a", fmt.Sprint("more ", i), ""))
	}
	require.EqualValues(t, 13*4096, l.Usage().Tenants["a"])
}

// Calls that write at the same time do not exceed a quota together.
func TestQuotaOfCallsAtTheSameTime(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Quota: 7 * 4096})
	var wg sync.WaitGroup
	for who := range 8 {
		wg.Go(func() {
			for i := range 20 {
				err := ofTenant(l, "a", fmt.Sprint(who, " ", i), "")
				if err != nil {
					require.ErrorIs(t, err, tier.ErrFull)
				}
				r := l.currentRoot()
				r.mu.Lock()
				if a := r.x.tenants["a"]; a != nil && a.bytes+a.reserved > 7*4096 {
					t.Errorf("%d bytes of a tenant are here or come, and its quota is %d", a.bytes+a.reserved, 7*4096)
				}
				r.mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Positive(t, l.Usage().Evicted)
}

// waiting is read when it is open.
type waiting struct {
	begun, open chan struct{}
	rest        io.Reader
}

func (w *waiting) Read(b []byte) (int, error) {
	select {
	case <-w.begun:
	default:
		close(w.begun)
	}
	<-w.open
	return w.rest.Read(b)
}

// What is being written counts, too, and can't be evicted yet.
func TestQuotaCountsWhatIsBeingWritten(t *testing.T) {
	l := ready(t, t.TempDir(), Options{Layout: noFolders{}, Quota: 4096})
	o := objectOf("slow", 100)
	o.Tenant = "a"
	slow := &waiting{make(chan struct{}), make(chan struct{}), bytes.NewReader(content("slow", 100))}
	puts := []tier.Put{{Object: o, From: slow}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Put(t.Context(), puts)
	}()
	<-slow.begun
	err := ofTenant(l, "a", "quick", "")
	close(slow.open)
	<-done
	require.ErrorIs(t, err, tier.ErrFull)
	require.NoError(t, puts[0].Err)
}

func TestQuotaIsNotNegative(t *testing.T) {
	require.Error(t, Options{Quota: -1}.Validate())
	require.Error(t, Options{Quotas: map[string]int64{"a": -1}}.Validate())
}
