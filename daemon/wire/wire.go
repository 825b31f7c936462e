package wire

//go:generate go run ../../scripts/wiregen

import (
	"time"

	"github.com/ringcache/ringcache/encoder"
)

// Version is the version of the protocol. Both sides say theirs in Hello; the daemon refuses another one by
// [KindVersion].
const Version = 1

// Limits of a message. A request or reply beyond them is refused, and the connection closed.
const (
	MaxRequest = 1 << 20 // bytes of a request's body
	MaxReply   = 8 << 20 // bytes of a reply's body
	MaxNames   = 1024    // names, objects or leases in one request
	maxSession = 64      // bytes of a session, ASCII letters, digits, "-" and "_"; the least is 8
	maxLease   = 128     // bytes of the name of a lease
	MaxClient  = 100     // bytes of the name of a client

	minSession = 8
)

// Op is what a request asks for.
type Op string

const (
	// Hello opens a session, or takes one up again. It has Version, Session and Client, and Fingerprint for
	// clients that want to be told the space of their keys. The reply has Version, Server, Segment, Space
	// and Limits.
	Hello Op = "hello"
	// Pin looks Names of Space up, and keeps those that are there in place, for Lease, for at least
	// Seconds. With Prefix, names are a chain, parents first, and the answer ends with the first miss. Each
	// item is hit, miss, pending (ask again, with the same lease), full, too large or unavailable.
	Pin Op = "pin"
	// Get returns where the objects are that Lease has in Space: those of Names, or all. Each item is hit,
	// reserved, or ended if the lease does not have it. It changes nothing: it is for a client that comes
	// back.
	Get Op = "get"
	// Reserve takes room for Objects of Space, for Lease, in order, so that a parent precedes its children.
	// Nobody sees them until Commit. Seconds are the least time of the lease: no write may begin after it,
	// unless the same is reserved again. Each item is reserved (write to its bytes), exists, pending
	// (somebody else has reserved it), full or too large.
	Reserve Op = "reserve"
	// Commit publishes Names of Space that Lease has reserved and that are written completely, in order.
	// With Keep they stay pinned for the lease, for at least Seconds. Each item is ok, or ended if the
	// lease has not reserved it.
	Commit Op = "commit"
	// Abort gives up Names of Space that Lease has reserved; nobody writes to their bytes any more. Items
	// as those of Commit.
	Abort Op = "abort"
	// Release ends Leases; or else what Lease pins of Names of Space, and the interest in those that are
	// pending. What is not there is skipped, so that releasing twice is fine.
	Release Op = "release"
	// Stat describes the daemon (State), the objects of Names of Space, if any, and, with List, all leases
	// and clients, and the layouts of KV caches that engines have registered. It pins nothing. Each item is
	// hit, with the levels that have it, miss, or pending: ask again.
	Stat Op = "stat"
	// Clear deletes the objects of Space, or of all spaces if it is empty, from all levels, in the
	// background; State.Clearing reports, in the reply first, that it goes on. With Prefix, Space is the
	// beginning of the spaces. What leases have stays.
	Clear Op = "clear"
)

// Request is a request of any kind. Fields that an Op does not name must be zero, and those that it names
// must not, apart from Seconds, Prefix, Keep, List and what is said to be optional.
type Request struct {
	ID uint64 `msg:"id,needed"`      // returned in the reply, and not 0: clients count from 1
	Op Op     `msg:"op,needed,open"` // one that the daemon does not know is refused by KindUnsupported

	Version     int                  `msg:"version" needs:"Hello"`
	Session     string               `msg:"session" needs:"Hello"`
	Client      string               `msg:"client" needs:"Hello"`    // for people: "vllm 0.32.0 worker 0"
	Fingerprint *encoder.Fingerprint `msg:"fingerprint" may:"Hello"` // see fingerprint, below
	Features    []string             `msg:"features,most=MaxNames" may:"Hello"`

	Lease   string   `msg:"lease" needs:"Pin Get Reserve Commit Abort" may:"Release"`
	Space   string   `msg:"space" needs:"Pin Get Reserve Commit Abort" may:"Release Stat Clear"`
	Names   []string `msg:"names,most=MaxNames" needs:"Pin Commit Abort" may:"Get Release Stat"`
	Seconds uint32   `msg:"seconds" may:"Pin Reserve Commit"` // 0 is the daemon's default
	Prefix  bool     `msg:"prefix" may:"Pin Clear"`
	Keep    bool     `msg:"keep" may:"Commit"`
	Objects []Object `msg:"objects,most=MaxNames" needs:"Reserve"`
	Leases  []string `msg:"leases,most=MaxNames" may:"Release"`
	List    bool     `msg:"list" may:"Stat"`

	// Trace is the trace context of the caller, a traceparent of W3C. The daemon's span of the request is a child of
	// it. One that can't be read is none.
	Trace string `msg:"trace" may:"Pin Get Reserve Commit"`
}

// fingerprint is [encoder.Fingerprint], with the keys of its fields.
type fingerprint struct {
	Model    string `msg:"model"`
	Revision string `msg:"revision"`
	DType    string `msg:"dtype"`
	Layout   string `msg:"layout"`
	Engine   string `msg:"engine"`
	Ranks    int    `msg:"ranks"`
	Rank     int    `msg:"rank"`
}

// Object describes an object that is to be stored, as tier.Object.
type Object struct {
	Name   string        `msg:"name,needed"`
	Size   int64         `msg:"size"` // bytes
	Note   []byte        `msg:"note"` // of an encoder's output: the text of encoder.Note, "bfloat16 256 5376"
	Parent string        `msg:"parent"`
	Tenant string        `msg:"tenant"`
	Cost   time.Duration `msg:"cost"` // nanoseconds that it takes to make the object anew; 0 is unknown
}

// Status is what became of one item of a request.
type Status string

const (
	StatusHit         Status = "hit"         // the lease pins it; of stat, a level has it
	StatusMiss        Status = "miss"        // no level has it
	StatusPending     Status = "pending"     // it is being stored or fetched: ask again
	StatusReserved    Status = "reserved"    // the room is the lease's, to write to
	StatusExists      Status = "exists"      // it is there already, and may be pinned
	StatusFull        Status = "full"        // no room now
	StatusTooLarge    Status = "too large"   // it could never have room
	StatusOK          Status = "ok"          // done, or it was so already
	StatusEnded       Status = "ended"       // the lease does not have it
	StatusUnavailable Status = "unavailable" // a miss, since a level that may have it is away
	StatusInvalid     Status = "invalid"     // no name or object that can be stored
)

// Reply answers a request.
type Reply struct {
	ID    uint64 `msg:"id"`    // 0 in an error about what is no request; the connection is closed then
	Error *Error `msg:"error"` // then nothing else is set

	Version int      `msg:"version"`
	Server  string   `msg:"server"` // for people: "ringcache 1.2.3"
	Segment *Segment `msg:"segment"`
	Space   string   `msg:"space"`
	Limits  *Limits  `msg:"limits"`

	Features []string `msg:"features"` // those of the request's that the daemon has, too

	Items  []Item  `msg:"items"` // in the order of the request's names or objects
	State  *State  `msg:"state"`
	Leases []Lease `msg:"leases"`

	Clients []ClientState `msg:"clients"`

	// Layouts are of Stat with List: what engines of LMCache have registered since the segment was made, the
	// last one first. Each is the JSON of a kv.Layout, from which spaces are computed.
	// See docs/decisions.md, "The daemon tells layouts of KV as texts".
	Layouts []string `msg:"layouts"`
}

// Segment is where objects are. If Generation or Inode differs from an earlier answer, it is another segment:
// all offsets and leases of before are void. A mapping of the old one stays readable.
type Segment struct {
	Name       string `msg:"name"` // in the directory of shared memory
	Size       int64  `msg:"size"` // bytes to map
	Generation uint64 `msg:"generation"`
	Inode      uint64 `msg:"inode"` // of the file, so that a client knows that it has opened this one
}

// Limits are the daemon's, within those of the protocol.
type Limits struct {
	Names   int    `msg:"names"`   // in one request
	Seconds uint32 `msg:"seconds"` // the longest time of a lease; longer is cut
	Held    int64  `msg:"held"`    // bytes that the sessions of a process may have pinned and reserved; beyond is full
	Leases  int    `msg:"leases"`  // of a session
}

// Item is the answer about one name or object. Offset, Size and Note are of hits and reservations; those of
// Stat have no Offset, since they may be in any level.
type Item struct {
	Status Status   `msg:"status,needed"`
	Name   string   `msg:"name"` // of Get without names only
	Offset uint64   `msg:"offset"`
	Size   int64    `msg:"size"`
	Note   []byte   `msg:"note"`
	Levels []string `msg:"levels"` // of Stat only, fastest first
}

// Error refuses a request as a whole. It is an error in Go, too.
type Error struct {
	Kind Kind   `msg:"kind,needed,open"`
	Text string `msg:"text,people"` // what is wrong, and what to do
}

// Error is the daemon's text; Kind says what to do.
func (e *Error) Error() string { return "daemon: " + e.Text }

// Kind is the kind of an Error.
type Kind string

const (
	KindVersion    Kind = "version"    // the text names which side to upgrade; the connection is closed
	KindPermission Kind = "permission" // another user, or another process's session; the connection is closed
	KindInvalid    Kind = "invalid"    // no such field or value; what has no id closes the connection
	// KindUnsupported is for an Op that the daemon does not know, since it is older than the client. The
	// text names the Op.
	KindUnsupported Kind = "unsupported"
	KindHello       Kind = "hello"    // before Hello, or after another connection has taken the session up
	KindBusy        Kind = "busy"     // too many sessions, connections, leases or spaces to clear
	KindClosing     Kind = "closing"  // the daemon ends, and closes the connection; connect again in a while
	KindInternal    Kind = "internal" // the daemon failed, and closes the connection
)

// State is what the daemon has and does now.
type State struct {
	Levels   []Level `msg:"levels"` // fastest first
	Sessions int     `msg:"sessions"`
	Leases   int     `msg:"leases"`
	Fetches  int     `msg:"fetches"`  // objects on their way into memory
	Backlog  int     `msg:"backlog"`  // objects that wait to be written to lower levels
	Clearing bool    `msg:"clearing"` // Clear goes on
	Seconds  int64   `msg:"seconds"`  // since the daemon's start

	Hits   int64 `msg:"hits"`   // answers to Pin since the daemon's start: objects that were there
	Misses int64 `msg:"misses"` // and that were not, or could not be fetched: miss, unavailable, full, too large
	Stored int64 `msg:"stored"` // objects that Commit published
	Recent *Use  `msg:"recent"` // of the last minutes
}

// Use is what was asked for within a time.
type Use struct {
	Seconds int64 `msg:"seconds"`
	Hits    int64 `msg:"hits"`
	Misses  int64 `msg:"misses"`
	Stored  int64 `msg:"stored"`
}

// Level is what a level has, as tier.LevelState; -1 is unknown.
type Level struct {
	Name     string `msg:"name,needed"`
	Away     bool   `msg:"away"`
	Objects  int64  `msg:"objects,least=-1"`
	Bytes    int64  `msg:"bytes,least=-1"`
	Capacity int64  `msg:"capacity,least=-1"`
	Held     int64  `msg:"held,least=-1"`
	Backlog  int    `msg:"backlog"` // objects that wait to be written to the level
}

// ClientState describes a session that has a connection now. Counts are since its Hello.
type ClientState struct {
	Session string `msg:"session,needed"`
	Client  string `msg:"client"`
	PID     int    `msg:"pid"`     // of the process; 0 is unknown
	Space   string `msg:"space"`   // by its fingerprint, or of its last request
	Seconds int64  `msg:"seconds"` // since its Hello
	Idle    int64  `msg:"idle"`    // seconds since its last request
	Hits    int64  `msg:"hits"`
	Misses  int64  `msg:"misses"`
	Stored  int64  `msg:"stored"`
}

// Lease describes an open lease, of any session.
type Lease struct {
	Name     string `msg:"name,needed"`
	Client   string `msg:"client"`
	PID      int    `msg:"pid"`              // of the client's process; 0 is unknown
	Seconds  int64  `msg:"seconds,least=-1"` // until its end; -1 is never, 0 that only reservations are left
	Pinned   int    `msg:"pinned"`
	Reserved int    `msg:"reserved"`
	Bytes    int64  `msg:"bytes"`
	Waiting  bool   `msg:"waiting"` // from before a restart: the client has not come back yet
	Names    int    `msg:"names"`   // how many of the request's names the lease pins or has reserved
}
