package redis

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/internal/redistest"
	"github.com/ringcache/ringcache/tier"
)

// Batches over all slots of a cluster; a slot that moves while it is read and written; damage; a server of
// three that is stopped.
func TestCluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3)
	l := open(t, Options{URL: "redis+cluster://" + servers[0].Addr() + "," + servers[1].Addr(),
		Timeout: 20 * time.Second, Retry: 10 * time.Millisecond})
	require.NoError(t, l.Ping(t.Context()))
	var objects []tier.Object
	for i := range 300 {
		objects = append(objects, object(fmt.Sprint("n", i), i*100))
	}
	put(t, l, objects...)
	check := func() {
		t.Helper()
		gets := make([]tier.Get, len(objects))
		for i, o := range objects {
			gets[i].Key = o.Key
		}
		l.Get(t.Context(), gets)
		for i, g := range gets {
			require.NoError(t, g.Err)
			require.True(t, bytes.Equal(content(objects[i].Name, int(objects[i].Size)), g.Bytes))
		}
	}
	check()
	for _, s := range servers {
		n, err := strconv.Atoi(s.Do("dbsize"))
		require.NoError(t, err)
		require.Greater(t, n, 50)
	}
	n := 0
	for _, err := range l.List(t.Context(), "space") {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, len(objects), n)

	t.Run("slot moves", func(t *testing.T) {
		const key = "ringcache:space:n7"
		slot := servers[0].Slot(key)
		from := redistest.Owner(servers, slot)
		to := (from + 1) % 3
		text := strconv.Itoa(slot)
		servers[to].Do("cluster", "setslot", text, "importing", servers[from].ID())
		servers[from].Do("cluster", "setslot", text, "migrating", servers[to].ID())
		check() // still there
		host, port, err := net.SplitHostPort(servers[to].Addr())
		require.NoError(t, err)
		require.Equal(t, "OK", servers[from].Do("migrate", host, port, key, "0", "5000"))
		check() // by ASK
		require.NoError(t, l.Delete(t.Context(), []tier.Key{keyOf("n7")})[0])
		put(t, l, objects[7]) // by ASK, too
		require.Contains(t, servers[from].Do("exists", key), "ASK")
		servers[to].Do("setrange", key, "100", "damage") // MOVED: redis-cli does not ask
		for _, i := range []int{to, from} {
			servers[i].Do("cluster", "setslot", text, "node", servers[to].ID())
		}
		check() // by MOVED
		require.Positive(t, len(servers[to].Do("setrange", key, "100", "damage")))
		require.ErrorIs(t, get(t, l, "n7").Err, tier.ErrCorrupt)
		require.Equal(t, "0", servers[to].Do("exists", key))
		put(t, l, objects[7])
		check()
	})
	t.Run("a stopped server", func(t *testing.T) {
		h := open(t, Options{URL: "redis+cluster://" + redistest.Addrs(servers), Timeout: 300 * time.Millisecond,
			Retry: 20 * time.Millisecond})
		wanted := make([]tier.Get, len(objects))
		for i, o := range objects {
			wanted[i].Key = o.Key
		}
		h.Get(t.Context(), wanted)
		servers[2].Stop()
		h.Get(t.Context(), wanted) // finds out
		keys := make([]tier.Key, len(objects))
		for i, o := range objects {
			keys[i] = o.Key
		}
		found, most, calls := 0, 0, 0
		for began := time.Now(); time.Since(began) < *stopped; calls++ {
			found = 0
			for _, f := range h.Stat(t.Context(), keys) {
				if f.Err == nil {
					found++
				} else {
					require.ErrorIs(t, f.Err, tier.ErrUnavailable)
				}
			}
			require.Less(t, found, 250)
			most = max(most, found)
		}
		require.Greater(t, most, 150, "two of three servers go on")
		h.Get(t.Context(), wanted)
		for _, g := range wanted {
			if g.Err == nil {
				require.True(t, bytes.Equal(content(g.Key.Name, int(g.Object.Size)), g.Bytes))
			}
		}
		t.Logf("%d batches in %v, %d of %d objects", calls, *stopped, found, len(objects))
		servers[2].Continue()
		require.Eventually(t, func() bool {
			h.Get(t.Context(), wanted)
			for _, g := range wanted {
				if g.Err != nil {
					return false
				}
			}
			return true
		}, 2*time.Minute, 5*time.Millisecond)
	})
	t.Run("opened as a single server", func(t *testing.T) {
		_, err := Open(t.Context(), Options{URL: "redis://" + servers[0].Addr()})
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorContains(t, err, "redis+cluster")
	})
	t.Run("two keys in different slots", func(t *testing.T) {
		m := open(t, Options{URL: "redis+cluster://" + servers[0].Addr() + "?layout=lmcache"})
		testLMCache(t, m)
	})
}

// When a master of a cluster is killed its replica takes its place, and the level finds it, though nobody
// else tells it.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3)
	replica := redistest.Replicate(t, servers[1])
	l := open(t, Options{URL: "redis+cluster://" + redistest.Addrs(servers), Timeout: 500 * time.Millisecond,
		Retry: 20 * time.Millisecond})
	var objects []tier.Object
	var keys []tier.Key
	for i := range 30 {
		objects = append(objects, object(fmt.Sprint("n", i), 1000))
		keys = append(keys, objects[i].Key)
	}
	put(t, l, objects...)
	replica.Wait(servers[1].Do("dbsize"), "dbsize")
	servers[1].Kill()
	away := 0
	require.Eventually(t, func() bool {
		away = 0
		for i, f := range l.Stat(t.Context(), keys) {
			if f.Err != nil {
				require.ErrorIs(t, f.Err, tier.ErrUnavailable)
				away++
				continue
			}
			require.Equal(t, objects[i].Key, f.Object.Key)
		}
		return away == 0
	}, 2*time.Minute, 20*time.Millisecond, "the client would look by itself after ten minutes")
	put(t, l, object("another", 1), object("and another", 1), object("one more", 1))
}

// Sentinels find the master, and the next one when it is killed.
func TestSentinel(t *testing.T) {
	t.Parallel()
	f := redistest.StartFailover(t)
	l := open(t, Options{URL: "redis+sentinel://" + redistest.Addrs(f.Sentinels) + "/main",
		Timeout: 500 * time.Millisecond, Retry: 20 * time.Millisecond})
	put(t, l, object("a", 1000))
	require.Equal(t, "1", f.Master.Do("dbsize"))
	f.Replica.Wait("1", "dbsize")
	f.Sentinels[0].Kill() // the first that is asked
	f.Master.Stop()
	require.ErrorIs(t, get(t, l, "a").Err, tier.ErrUnavailable)
	require.Eventually(t, func() bool { return get(t, l, "a").Err == nil }, 2*time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		return tryPut(t.Context(), l, object("b", 1000))[0] == nil
	}, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, "2", f.Replica.Do("dbsize"))

	wrong := open(t, Options{URL: "redis+sentinel://" + redistest.Addrs(f.Sentinels[1:]) + "/other"})
	require.ErrorContains(t, wrong.Ping(t.Context()), `"other"`)
}

// TLS with and without the right authority, and with a certificate of the client.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificates(t, dir)
	file := func(name string) string { return filepath.Join(dir, name) }
	port := freePort(t)
	probe := redistest.Start(t, "--tls-port", "0")
	if out := probe.Do("config", "get", "tls-port"); out == "" {
		t.Skip("this redis-server is built without TLS")
	}
	s := redistest.Start(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", file("server.crt"), "--tls-key-file",
		file("server.key"), "--tls-ca-cert-file", file("ca.crt"))
	url := "rediss://127.0.0.1:" + strconv.Itoa(port)
	l := open(t, Options{URL: url + "?ca=" + file("ca.crt") + "&cert=" + file("client.crt") + "&key=" + file("client.key"), Timeout: time.Minute})
	put(t, l, object("a", 1<<20))
	mustGet(t, l, "a")
	s.Restart()
	put(t, l, object("a", 1<<20)) // the client can't see that its connections are old ones
	mustGet(t, l, "a")

	_, err := Open(t.Context(), Options{URL: url, Timeout: time.Minute}) // a busy machine is no server that is away
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "authority")
	h := open(t, Options{URL: url + "?ca=" + file("ca.crt"), Timeout: 200 * time.Millisecond})
	require.ErrorIs(t, h.Ping(t.Context()), tier.ErrUnavailable, "the server wants a certificate of the client")
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// certificates writes an authority, and certificates of a server and of a client.
func certificates(t *testing.T, dir string) {
	var serial atomic.Int64
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for _, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		c := &x509.Certificate{
			SerialNumber: big.NewInt(serial.Add(1)),
			Subject:      pkix.Name{CommonName: name},
			NotBefore:    time.Now().Add(-time.Hour),
			NotAfter:     time.Now().Add(time.Hour),
			IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if name == "ca" {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
		require.NoError(t, err)
		private, err := x509.MarshalECPrivateKey(key)
		require.NoError(t, err)
		for ending, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der},
			".key": {Type: "EC PRIVATE KEY", Bytes: private}} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+ending), pem.EncodeToMemory(block), 0o600))
		}
	}
}

// A connection that was not made fails with the reason, and nothing is logged or left in the background.
func TestNoConnection(t *testing.T) {
	c := &connections{settings: &settings{Options: Options{Timeout: time.Second}}}
	conn, err := c.dial(context.Background(), "tcp", "127.0.0.1:1")
	require.NoError(t, err)
	_, err = conn.Write([]byte("x"))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = conn.(syscall.Conn).SyscallConn()
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "the pool finds out, too")
	require.NoError(t, conn.Close())
}
