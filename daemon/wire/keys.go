package wire

import "slices"

// The keys of each map, in the order in which they are written. The number of a key in its list is its bit in a set.
var (
	requestKeys     = keys{"id", "op", "version", "session", "client", "fingerprint", "lease", "space", "names", "seconds", "prefix", "keep", "objects", "leases", "list"}
	printKeys       = keys{"model", "revision", "dtype", "layout", "engine", "ranks", "rank"}
	objectKeys      = keys{"name", "size", "note", "parent", "tenant", "cost"}
	replyKeys       = keys{"id", "error", "version", "server", "segment", "space", "limits", "items", "state", "leases", "clients"}
	errorKeys       = keys{"kind", "text"}
	segmentKeys     = keys{"name", "size", "generation", "inode"}
	limitsKeys      = keys{"names", "seconds", "held", "leases"}
	itemKeys        = keys{"status", "name", "offset", "size", "note", "levels"}
	stateKeys       = keys{"levels", "sessions", "leases", "pending", "owed", "clearing", "seconds", "hits", "misses", "stored", "recent"}
	levelKeys       = keys{"name", "away", "objects", "bytes", "capacity", "held", "owed"}
	useKeys         = keys{"seconds", "hits", "misses", "stored"}
	clientStateKeys = keys{"session", "client", "pid", "space", "seconds", "idle", "hits", "misses", "stored"}
	leaseKeys       = keys{"name", "client", "pid", "seconds", "pinned", "reserved", "bytes", "waiting"}
)

// Numbers in requestKeys.
const (
	qID = iota
	qOp
	qVersion
	qSession
	qClient
	qFingerprint
	qLease
	qSpace
	qNames
	qSeconds
	qPrefix
	qKeep
	qObjects
	qLeases
	qList
)

// Numbers in replyKeys.
const (
	pID = iota
	pError
	pVersion
	pServer
	pSegment
	pSpace
	pLimits
	pItems
	pState
	pLeases
	pClients
)

var (
	ops      = []Op{Hello, Pin, Get, Reserve, Commit, Abort, Release, Stat, Clear}
	statuses = []Status{
		StatusHit, StatusMiss, StatusPending, StatusReserved, StatusExists, StatusFull, StatusTooLarge, StatusOK, StatusEnded,
		StatusUnavailable, StatusInvalid,
	}
	kinds = []Kind{KindVersion, KindPermission, KindInvalid, KindHello, KindBusy, KindClosing, KindInternal}
)

type keys []string

// find returns the number of a key, or -1.
func (k keys) find(key []byte) int {
	for i, s := range k {
		if s == string(key) {
			return i
		}
	}
	return -1
}

// word returns the one of the known words that b is.
func word[T ~string](known []T, b []byte) (T, bool) {
	i := slices.IndexFunc(known, func(w T) bool { return string(w) == string(b) })
	if i < 0 {
		return "", false
	}
	return known[i], true
}

// set is a set of keys.
type set uint32

func setOf(numbers ...int) (s set) {
	for _, n := range numbers {
		s |= 1 << n
	}
	return s
}

func (s set) has(n int) bool { return s>>n&1 != 0 }

// when adds a key if there is something to write under it.
func (s *set) when(n int, there bool) {
	if there {
		*s |= 1 << n
	}
}
