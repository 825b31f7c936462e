package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// slots is the number of slots of a cluster.
const slots = 16384

// Cluster runs the masters of a cluster, without replicas. They share the slots equally, in order.
func Cluster(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		s := member(t, args)
		s.Do("cluster", "addslotsrange", strconv.Itoa(slots*i/n), strconv.Itoa(slots*(i+1)/n-1))
		s.Do("cluster", "set-config-epoch", strconv.Itoa(i+1))
		servers[i] = s
	}
	for _, s := range servers[1:] {
		s.Do("cluster", "meet", "127.0.0.1", strconv.Itoa(servers[0].port), strconv.Itoa(servers[0].bus))
	}
	for _, s := range servers {
		s.Wait("cluster_slots_ok:"+strconv.Itoa(slots), "cluster", "info")
		s.Wait("cluster_known_nodes:"+strconv.Itoa(n), "cluster", "info")
		s.Wait("cluster_state:ok", "cluster", "info")
	}
	return servers
}

// Replicate runs a replica of a cluster's master, which takes its place when it is away for some seconds.
func Replicate(t testing.TB, master *Server, args ...string) *Server {
	t.Helper()
	s := member(t, args)
	s.Do("cluster", "meet", "127.0.0.1", strconv.Itoa(master.port), strconv.Itoa(master.bus))
	s.Wait(master.ID(), "cluster", "nodes")
	s.Wait("OK", "cluster", "replicate", master.ID())
	s.Wait("master_link_status:up", "info", "replication")
	s.Wait("cluster_slots_ok:"+strconv.Itoa(slots), "cluster", "info")
	return s
}

// member runs a server that belongs to no cluster yet.
func member(t testing.TB, args []string) *Server {
	t.Helper()
	s := New(t)
	s.args = append([]string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.bus),
		"--cluster-node-timeout", "2000",
		"--cluster-require-full-coverage", "no", "--cluster-config-file", "nodes.conf"}, args...)
	s.Start()
	return s
}

// ID is the name of a cluster's member.
func (s *Server) ID() string { return s.Do("cluster", "myid") }

// Owner returns the index of the server that has a slot.
func Owner(servers []*Server, slot int) int {
	for i := range servers {
		if slot < slots*(i+1)/len(servers) {
			return i
		}
	}
	return -1
}

// Slot returns the slot of a key.
func (s *Server) Slot(key string) int {
	s.t.Helper()
	n, err := strconv.Atoi(s.Do("cluster", "keyslot", key))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// Failover is a master with a replica, and Sentinels.
type Failover struct {
	Master, Replica *Server
	Sentinels       []*Server
}

// StartFailover runs a master of the name "main", its replica, and three Sentinels that replace the master
// after a second.
func StartFailover(t testing.TB, args ...string) Failover {
	t.Helper()
	master := Start(t, args...)
	replica := Start(t, append([]string{"--replicaof", "127.0.0.1 " + strconv.Itoa(master.port),
		"--repl-diskless-sync-delay", "0"}, args...)...)
	master.Wait("state=online", "info", "replication")
	f := Failover{Master: master, Replica: replica}
	for range 3 {
		s := New(t)
		config := filepath.Join(s.folder, "sentinel.conf")
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile %s\nsentinel monitor main 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n",
			s.port, s.folder, filepath.Join(s.folder, "log"), master.port)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run("redis-server", config, "--sentinel")
		f.Sentinels = append(f.Sentinels, s)
	}
	for _, s := range f.Sentinels {
		s.Wait("num-other-sentinels\n2", "sentinel", "master", "main")
		s.Wait("num-slaves\n1", "sentinel", "master", "main")
	}
	return f
}

// Addrs returns the addresses of servers, with commas between them.
func Addrs(servers []*Server) string {
	texts := make([]string, len(servers))
	for i, s := range servers {
		texts[i] = s.Addr()
	}
	return strings.Join(texts, ",")
}
