package daemon

import (
	"fmt"
	"runtime"
	"strings"
)

// files is how many descriptors the parts of a daemon may have.
// See docs/decisions.md, "Descriptors are divided at the start".
type files struct {
	all    int // the limit of the process; 0 is unknown, and then nothing is bounded by it
	base   int // segment, sockets, locks, log, what is read of /proc
	http   int // connections
	disk   int // files that are open at a time; the level has as many again for folders, and for the heads of files and their folders
	folder int // files of a folder of several hosts that are open at a time
	redis  int // calls at a time; the level has twice as many connections, and 4, to each server
	s3     int // round trips at a time, each with a connection
	// clients is what is left for connections, each of which has one descriptor, and processes, each of which
	// has one, too.
	clients int
}

const (
	baseFiles = 40
	leastHTTP = 8

	valueFiles   = 6 // of an address of lm or resp: its listener and lock, and connections to the server of lm-from
	lmcacheFiles = 3 // of an address of LMCache's protocol: its listener, its lock, and the file of engines while it is written

	otlpFiles = 4 // connections to the collector, and what its name is looked up with

	mostS3       = 16 // as package s3 has it
	mostRedis    = 16 // as package redis has it
	redisServers = 3  // of a cluster or behind Sentinels, that are asked at a time
)

// mostDisk is what package disk opens at a time if nothing is said.
func mostDisk() int { return max(8, 4*runtime.GOMAXPROCS(0)) }

// files divides the descriptors of this process.
func (c Config) files() files { return c.divide(openFiles()) }

// divide divides so many descriptors.
func (c Config) divide(all int) files {
	f := files{
		all: all, base: baseFiles + lmcacheFiles*len(c.LMCache), http: maxHTTP, disk: mostDisk(), folder: max(16, mostDisk()),
		redis: mostRedis, s3: mostS3,
	}
	for _, x := range c.valueProtocols() {
		f.base += valueFiles * len(x.addresses)
	}
	if c.PProf != "" {
		f.base += 1 + maxPProf
	}
	if c.OTLP != "" {
		f.base += otlpFiles
	}
	if all > 0 {
		f.http = min(f.http, max(leastHTTP, all/16))
		f.disk = min(f.disk, max(4, all/16))
		f.folder = min(f.folder, max(4, all/16))
		f.redis = min(f.redis, max(2, all/64))
		f.s3 = min(f.s3, max(2, all/64))
	}
	f.clients = all - f.base
	if c.HTTP != httpOff {
		f.clients -= f.http
	}
	for _, x := range c.lower() {
		if x.place != "" {
			f.clients -= x.files(f)
		}
	}
	return f
}

func (c Config) diskFiles(f files) int { return 3 * f.disk }

// s3Files has a connection more than round trips, and one for what credentials are asked with.
func (c Config) s3Files(f files) int { return f.s3 + 2 }

// folderFiles counts for each file one that is open and folders of its path that are, and the probes.
func (c Config) folderFiles(f files) int { return 3*f.folder + 16 }

func (c Config) redisFiles(f files) int {
	if strings.HasPrefix(c.Redis, "redis+") || strings.Contains(c.Redis, ",") {
		return redisServers * (2*f.redis + 4)
	}
	return 2*f.redis + 4
}

// need is the most descriptors that clients take within limits: for connections and their processes, for
// processes whose sessions have no connection, and for connections that are being refused.
func (l Limits) need() int { return 2*l.MaxConnections + l.MaxSessions + l.refuseAtOnce() }

// refuseAtOnce is how many connections are told why they are refused at a time.
func (l Limits) refuseAtOnce() int { return min(refuseAtOnce, l.MaxConnections/4+1) }

// fit returns limits with so many connections and sessions that there are descriptors for all of them. cut
// reports that there were not.
func (f files) fit(l Limits) (_ Limits, cut bool) {
	if f.all == 0 || l.need() <= f.clients {
		return l, false
	}
	sessions := l.MaxSessions
	l.MaxSessions = min(sessions, max(1, (f.clients-1)*4/13)) // as many as connections
	l.MaxConnections = min(l.MaxConnections, max(1, (f.clients-l.MaxSessions-1)*4/9))
	l.MaxSessions = max(1, min(sessions, f.clients-l.need()+l.MaxSessions))
	return l, true
}

// enough reports whether one client can be served at all.
func (f files) enough() bool {
	return f.all == 0 || f.clients >= Limits{MaxConnections: 1, MaxSessions: 1}.need()
}

// limits are what the server grants, with the descriptors that there are.
func (c Config) limits() Limits {
	l, _ := c.files().fit(c.configured())
	return l
}

// checkFiles reports that there are not enough descriptors for any client.
func checkFiles(c Config) error {
	if f := c.files(); !f.enough() {
		return fmt.Errorf("this process may open %d files, which is not enough for its levels and one client: %s",
			f.all, howToOpen(c))
	}
	return nil
}

// howToOpen says what to set for as many files as the configuration needs.
func howToOpen(c Config) string {
	f := c.divide(1 << 20) // so many that nothing is cut
	return fmt.Sprintf("set --ulimit nofile=%[1]d in docker run, ulimits: {nofile: %[1]d} in a compose file, or LimitNOFILE=%[1]d in a systemd unit", f.all-f.clients+c.configured().need())
}
