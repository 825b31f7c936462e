package wire

import (
	"strings"
	"unicode"
)

// form is what the requests of one op have.
type form struct{ needed, allowed set }

var (
	always = setOf(qID, qOp)
	forms  = map[Op]form{
		Hello:   {setOf(qVersion, qSession, qClient), setOf(qFingerprint)},
		Pin:     {setOf(qLease, qSpace, qNames), setOf(qSeconds, qPrefix)},
		Get:     {setOf(qLease, qSpace), setOf(qNames)},
		Reserve: {setOf(qLease, qSpace, qObjects), setOf(qSeconds)},
		Commit:  {setOf(qLease, qSpace, qNames), setOf(qKeep, qSeconds)},
		Abort:   {setOf(qLease, qSpace, qNames), 0},
		Release: {0, setOf(qLeases, qLease, qSpace, qNames)},
		Stat:    {0, setOf(qSpace, qNames, qList)},
		Clear:   {0, setOf(qSpace)},
	}
)

// Validate reports which field of a request its Op needs and does not have, has and must not have, or has with a value
// that is never right: an *[Error] of [KindInvalid], or of [KindVersion]. Names and objects are not looked at: what can't be stored is
// answered one by one, by [StatusInvalid].
func (q *Request) Validate() error {
	f, ok := forms[q.Op]
	if !ok {
		return invalid("request: op: %.64q is unknown, want one of %q", q.Op, ops)
	}
	if q.Op == Hello && q.Version != Version && q.Version > 0 {
		return versionError(q.Version)
	}
	used := q.used()
	needed := f.needed | always
	if n, some := first(needed &^ used); some {
		return invalid("request: %s: %s needs it, and it is empty, 0 or missing", requestKeys[n], q.Op)
	}
	if n, some := first(used &^ (needed | f.allowed)); some {
		return invalid("request: %s: %s has no such field; leave it out", requestKeys[n], q.Op)
	}
	return q.validate(used)
}

// validate looks at values, and at fields that belong together.
func (q *Request) validate(used set) error {
	switch {
	case used.has(qSession) && !validSession(q.Session):
		return invalid("request: session: %.100q, want %d to %d ASCII letters, digits, - and _", q.Session, minSession, MaxSession)
	case len(q.Client) > MaxClient:
		return invalid("request: client: %d bytes, the most is %d", len(q.Client), MaxClient)
	case !printable(q.Client):
		return invalid("request: client: %+q has control characters, or such as nobody sees; leave them out", q.Client)
	case used.has(qLease) && !validLease(q.Lease):
		return leaseError("lease", q.Lease)
	case q.Op == Commit && used.has(qSeconds) && !q.Keep:
		return invalid("request: seconds: commit has them with keep only; leave them out")
	case q.Op == Stat && used.has(qSpace) != used.has(qNames):
		return invalid("request: space: stat needs it with names, and only then")
	}
	if q.Op == Release {
		return q.validateRelease(used)
	}
	if q.Fingerprint != nil {
		if err := q.Fingerprint.Validate(); err != nil {
			return invalid("request: fingerprint: %v", err)
		}
	}
	return nil
}

// validateRelease: a release has leases, or names of one lease.
func (q *Request) validateRelease(used set) error {
	some := setOf(qLease, qSpace, qNames)
	switch {
	case used.has(qLeases) && used&some != 0:
		return invalid("request: leases: release has leases, or the names of one lease, not both")
	case !used.has(qLeases) && used&some != some:
		return invalid("request: leases: release needs leases, or a lease, a space and names")
	}
	for _, l := range q.Leases {
		if !validLease(l) {
			return leaseError("leases", l)
		}
	}
	return nil
}

func leaseError(key, lease string) *Error {
	return invalid("request: %s: %.200q, want 1 to %d bytes without control characters, and without such as nobody sees", key, lease, MaxLease)
}

func validLease(s string) bool { return s != "" && len(s) <= MaxLease && printable(s) }

func validSession(s string) bool {
	return len(s) >= minSession && len(s) <= MaxSession && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

// printable reports whether a text has neither control characters, nor those of format, which nobody sees:
// what a line of a log or a terminal shows is the text then.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }) < 0
}

// first returns the lowest number in a set.
func first(s set) (n int, some bool) {
	for n := range requestKeys {
		if s.has(n) {
			return n, true
		}
	}
	return 0, false
}

func versionError(client int) *Error {
	side := "client"
	if client > Version {
		side = "daemon"
	}
	e := invalid("the client speaks version %d of the protocol and the daemon version %d: upgrade the %s", client, Version, side)
	e.Kind = KindVersion
	return e
}
