package wire

import (
	"reflect"
	"strings"
	"unicode"
)

// form is what the requests of one op have.
type form struct{ needs, may set }

const always = 1<<requestID | 1<<requestOp

// Validate reports which field of a request its Op needs and does not have, has and must not have, or has
// with a value that is never right: an *[Error] of [KindInvalid], [KindUnsupported] or [KindVersion]. Names
// and objects are not looked at: what can't be stored is answered one by one, by [StatusInvalid].
func (q *Request) Validate() error { return q.check(q.used()) }

// check is Validate of a request that uses these fields.
func (q *Request) check(used set) error {
	f, ok := forms[q.Op]
	switch {
	case q.Op == "":
		return invalid("request: op: every request needs it, and it is empty")
	case !ok && q.ID != 0:
		e := invalid("operation %.64q is unknown here, in version %d of the protocol: upgrade the daemon, or do without", q.Op, Version)
		e.Kind = KindUnsupported
		return e
	}
	if q.Op == Hello && q.Version != Version && q.Version > 0 {
		return versionError(q.Version)
	}
	needed := f.needs | always
	if missing := needed &^ used; missing != 0 {
		return invalid("request: %s: %s needs it, and it is empty, 0 or missing", requestKeys[missing.first()], q.Op)
	}
	if other := used &^ (needed | f.may); other != 0 {
		return invalid("request: %s: %s has no such field; leave it out", requestKeys[other.first()], q.Op)
	}
	return q.validate(used)
}

// validate looks at values, and at fields that belong together.
func (q *Request) validate(used set) error {
	switch {
	case used.has(requestSession) && !validSession(q.Session):
		return invalid("request: session: %.100q, want %d to %d ASCII letters, digits, - and _", q.Session,
			minSession, maxSession)
	case len(q.Client) > MaxClient:
		return invalid("request: client: %d bytes, the most is %d", len(q.Client), MaxClient)
	case !printable(q.Client):
		return invalid("request: client: %+q has control characters, or such as nobody sees; leave them out", q.Client)
	case used.has(requestLease) && !validLease(q.Lease):
		return leaseError("lease", q.Lease)
	case q.Op == Commit && used.has(requestSeconds) && !q.Keep:
		return invalid("request: seconds: commit has them with keep only; leave them out")
	case q.Op == Stat && used.has(requestSpace) != used.has(requestNames):
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
	const some = 1<<requestLease | 1<<requestSpace | 1<<requestNames
	switch {
	case used.has(requestLeases) && used&some != 0:
		return invalid("request: leases: release has leases, or the names of one lease, not both")
	case !used.has(requestLeases) && used&some != some:
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
	return invalid("request: %s: %.200q, want 1 to %d bytes without control characters, and without such as nobody sees", key, lease, maxLease)
}

func validLease(s string) bool { return s != "" && len(s) <= maxLease && printable(s) }

func validSession(s string) bool {
	return len(s) >= minSession && len(s) <= maxSession && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

// printable reports whether a text has neither control characters, nor those of format, which nobody sees:
// what a line of a log or a terminal shows is the text then.
func printable(s string) bool {
	return strings.IndexFunc(s,
		func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }) < 0
}

// drop makes fields zero that the Op has not, and returns those that the request uses.
func (q *Request) drop() set {
	used := q.used()
	f, ok := forms[q.Op]
	if !ok {
		return used
	}
	has := f.needs | f.may | always
	for more := used &^ has; more != 0; more &= more - 1 {
		reflect.ValueOf(q).Elem().Field(more.first()).SetZero()
	}
	return used & has
}

func versionError(client int) *Error {
	side := "client"
	if client > Version {
		side = "daemon"
	}
	e := invalid("the client speaks version %d of the protocol and the daemon version %d: upgrade the %s", client,
		Version, side)
	e.Kind = KindVersion
	return e
}
