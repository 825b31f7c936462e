package wire

import (
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/encoder"
)

// AppendRequest appends the frame of a request to b: the length, and the body without fields that are zero. It does not
// look at what belongs to which Op; [Request.Validate] does. The error is an *[Error] of [KindInvalid] about a text that is not UTF-8,
// a negative number, too many names, or more than MaxRequest bytes; b is returned unchanged then.
func AppendRequest(b []byte, q *Request) ([]byte, error) {
	e := encoding{b: begin(b), what: "request"}
	e.request(q)
	return e.end(b, MaxRequest)
}

// AppendReply appends the frame of a reply to b, as [AppendRequest]. What is not UTF-8 in the text of an Error is
// replaced, since such a text may cite anything. The error is an *[Error] of [KindInvalid], about a text that is not UTF-8, a number
// out of range, or more than MaxReply bytes.
func AppendReply(b []byte, p *Reply) ([]byte, error) {
	e := encoding{b: begin(b), what: "reply"}
	e.reply(p)
	return e.end(b, MaxReply)
}

// ReplySize returns how many bytes AppendReply appends for p at most.
func ReplySize(p *Reply) int {
	// Room for all keys and values of fixed size of each map, and 5 bytes for the length of each text or list.
	const fields, item, level, lease, visitor = 640, 50, 100, 120, 150
	n := fields + len(p.Server) + len(p.Space)
	if p.Error != nil {
		n += len(p.Error.Kind) + 3*len(p.Error.Text) // what is no UTF-8 becomes three bytes
	}
	if p.Segment != nil {
		n += len(p.Segment.Name)
	}
	for i := range p.Items {
		it := &p.Items[i]
		n += item
		if it.Name != "" {
			n += 10 + len(it.Name)
		}
		if len(it.Note) > 0 {
			n += 10 + len(it.Note)
		}
		if len(it.Levels) > 0 {
			n += 12
		}
		for _, l := range it.Levels {
			n += 5 + len(l)
		}
	}
	if p.State != nil {
		for i := range p.State.Levels {
			n += level + len(p.State.Levels[i].Name)
		}
	}
	for i := range p.Clients {
		v := &p.Clients[i]
		n += visitor + len(v.Session) + len(v.Client) + len(v.Space)
	}
	for i := range p.Leases {
		n += lease + len(p.Leases[i].Name) + len(p.Leases[i].Client)
	}
	return n
}

type encoding struct {
	b    []byte
	what string
	err  *Error
}

func (e *encoding) end(b []byte, most int) ([]byte, error) {
	if e.err != nil {
		return b, e.err
	}
	if err := finish(e.b, len(b), most); err != nil {
		return b, err
	}
	return e.b, nil
}

func (e *encoding) fail(key, format string, args ...any) {
	if e.err == nil {
		e.err = invalid(e.what+": "+key+": "+format, args...)
	}
}

// head begins a map with the keys of a set.
func (e *encoding) head(s set) {
	e.b = msgp.AppendMapHeader(e.b, uint32(bits.OnesCount32(uint32(s))))
}

func (e *encoding) key(k string)          { e.b = msgp.AppendString(e.b, k) }
func (e *encoding) uint(n uint64)         { e.b = msgp.AppendUint64(e.b, n) }
func (e *encoding) bool(v bool)           { e.b = msgp.AppendBool(e.b, v) }
func (e *encoding) bytes(v []byte)        { e.b = msgp.AppendBytes(e.b, v) }
func (e *encoding) list(n int)            { e.b = msgp.AppendArrayHeader(e.b, uint32(n)) }
func (e *encoding) small(k string, n int) { e.upTo(k, int64(n), 1<<31-1) }

// upTo writes an integer from 0.
func (e *encoding) upTo(k string, n, most int64) {
	if n < 0 || n > most {
		e.fail(k, "%d, want 0 to %d", n, most)
	}
	e.uint(uint64(n))
}

func (e *encoding) size(k string, n int64) { e.upTo(k, n, 1<<63-1) }

// orUnknown writes an integer from -1.
func (e *encoding) orUnknown(k string, n int64) {
	if n == -1 {
		e.b = msgp.AppendInt64(e.b, n)
		return
	}
	e.size(k, n)
}

func (e *encoding) text(k, s string) {
	if !utf8.ValidString(s) {
		e.fail(k, "%.64q is not UTF-8", s)
	}
	e.b = msgp.AppendString(e.b, s)
}

func (e *encoding) texts(k string, list []string) {
	e.list(len(list))
	for _, s := range list {
		e.text(k, s)
	}
}

// atMost refuses a list that no request can have.
func (e *encoding) atMost(k string, n, most int) {
	if n > most {
		e.fail(k, "%d of them, the most in one message is %d", n, most)
	}
}

// fields writes a map with the keys of a set, and calls write for the value of each.
func (e *encoding) fields(known keys, s set, write func(n int, key string)) {
	e.head(s)
	for n, k := range known {
		if s.has(n) {
			e.key(k)
			write(n, k)
		}
	}
}

// used returns which fields of a request are not zero.
func (q *Request) used() (s set) {
	s.when(qID, q.ID != 0)
	s.when(qOp, q.Op != "")
	s.when(qVersion, q.Version != 0)
	s.when(qSession, q.Session != "")
	s.when(qClient, q.Client != "")
	s.when(qFingerprint, q.Fingerprint != nil)
	s.when(qLease, q.Lease != "")
	s.when(qSpace, q.Space != "")
	s.when(qNames, len(q.Names) > 0)
	s.when(qSeconds, q.Seconds != 0)
	s.when(qPrefix, q.Prefix)
	s.when(qKeep, q.Keep)
	s.when(qObjects, len(q.Objects) > 0)
	s.when(qLeases, len(q.Leases) > 0)
	s.when(qList, q.List)
	return s
}

func (e *encoding) request(q *Request) {
	e.atMost("names", len(q.Names), MaxNames)
	e.atMost("objects", len(q.Objects), MaxNames)
	e.atMost("leases", len(q.Leases), MaxNames)
	if e.err != nil {
		return
	}
	e.fields(requestKeys, q.used(), func(n int, k string) {
		switch n {
		case qID:
			e.uint(q.ID)
		case qOp:
			e.text(k, string(q.Op))
		case qVersion:
			e.small(k, q.Version)
		case qSession:
			e.text(k, q.Session)
		case qClient:
			e.text(k, q.Client)
		case qFingerprint:
			e.fingerprint(q.Fingerprint)
		case qLease:
			e.text(k, q.Lease)
		case qSpace:
			e.text(k, q.Space)
		case qNames:
			e.texts(k, q.Names)
		case qSeconds:
			e.uint(uint64(q.Seconds))
		case qPrefix, qKeep, qList:
			e.bool(true)
		case qObjects:
			e.list(len(q.Objects))
			for i := range q.Objects {
				e.object(&q.Objects[i])
			}
		case qLeases:
			e.texts(k, q.Leases)
		}
	})
}

func (e *encoding) fingerprint(f *encoder.Fingerprint) {
	var s set
	texts := [...]string{f.Model, f.Revision, f.DType, f.Layout, f.Engine}
	for n, t := range texts {
		s.when(n, t != "")
	}
	s.when(5, f.Ranks != 0)
	s.when(6, f.Rank != 0)
	e.fields(printKeys, s, func(n int, k string) {
		switch n {
		case 5:
			e.small(k, f.Ranks)
		case 6:
			e.small(k, f.Rank)
		default:
			e.text(k, texts[n])
		}
	})
}

func (e *encoding) object(o *Object) {
	s := setOf(0)
	s.when(1, o.Size != 0)
	s.when(2, len(o.Note) > 0)
	s.when(3, o.Parent != "")
	s.when(4, o.Tenant != "")
	s.when(5, o.Cost != 0)
	e.fields(objectKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.text(k, o.Name)
		case 1:
			e.size(k, o.Size)
		case 2:
			e.bytes(o.Note)
		case 3:
			e.text(k, o.Parent)
		case 4:
			e.text(k, o.Tenant)
		case 5:
			e.size(k, int64(o.Cost))
		}
	})
}

// readable makes a text for people fit for a message.
func readable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
