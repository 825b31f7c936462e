package wire

import (
	"math"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// DecodeRequest reads the body of a frame into q, whose earlier contents go; the room of its lists is used again. Texts
// and notes are memory of their own. The error is an *[Error]: [KindInvalid] names the field, [KindVersion] is for a
// Hello in another version of the protocol.
//
// If q.ID is not 0 after an error, the body was a request as such, and the error can be sent as its reply; the
// connection goes on, unless the error is of KindVersion. If q.ID is 0, nobody knows what
// the peer means: reply with the error and the ID 0, if at all, and close the connection.
func DecodeRequest(body []byte, q *Request) error {
	*q = Request{
		Session: q.Session, Client: q.Client, Lease: q.Lease, Space: q.Space, // not allocated again if they are the same
		Names: q.Names[:0], Objects: q.Objects[:0], Leases: q.Leases[:0],
	}
	var d decoder
	d.begin("request", body)
	if d.err != nil {
		*q = Request{}
		return d.err
	}
	d.request(q)
	err := d.end()
	if err == nil {
		err = q.Validate()
	}
	if err == nil {
		return nil
	}
	id, version, hello := salvage(body)
	*q = Request{ID: id}
	if hello && version != Version {
		return versionError(version) // rather than an error about what is new in that version
	}
	return err
}

func (d *decoder) request(q *Request) {
	seen := d.fields(requestKeys, setOf(qID, qOp), func(n int) {
		switch n {
		case qID:
			q.ID = d.uint64()
		case qOp:
			q.Op = wordOf(d, ops)
		case qVersion:
			q.Version = d.int()
		case qSession:
			q.Session = d.text(q.Session)
		case qClient:
			q.Client = d.text(q.Client)
		case qFingerprint:
			q.Fingerprint = d.fingerprint()
		case qLease:
			q.Lease = d.text(q.Lease)
		case qSpace:
			q.Space = d.text(q.Space)
		case qNames:
			q.Names = d.textList(q.Names, MaxNames)
		case qSeconds:
			q.Seconds = d.uint32()
		case qPrefix:
			q.Prefix = d.bool()
		case qKeep:
			q.Keep = d.bool()
		case qObjects:
			d.list(MaxNames, func(int) { q.Objects = append(q.Objects, d.object()) })
		case qLeases:
			q.Leases = d.textList(q.Leases, MaxNames)
		case qList:
			q.List = d.bool()
		}
	})
	if !seen.has(qSession) {
		q.Session = ""
	}
	if !seen.has(qClient) {
		q.Client = ""
	}
	if !seen.has(qLease) {
		q.Lease = ""
	}
	if !seen.has(qSpace) {
		q.Space = ""
	}
}

func (d *decoder) fingerprint() *encoder.Fingerprint {
	f := &encoder.Fingerprint{}
	d.fields(printKeys, 0, func(n int) {
		switch n {
		case 0:
			f.Model = d.text("")
		case 1:
			f.Revision = d.text("")
		case 2:
			f.DType = d.text("")
		case 3:
			f.Layout = d.text("")
		case 4:
			f.Engine = d.text("")
		case 5:
			f.Ranks = d.int()
		case 6:
			f.Rank = d.int()
		}
	})
	return f
}

// object reads an Object, whose name is needed: the shortest body of many of them then has bytes in
// proportion to the memory that they take.
func (d *decoder) object() (o Object) {
	d.fields(objectKeys, setOf(0), func(n int) {
		switch n {
		case 0:
			o.Name = d.text("")
		case 1:
			o.Size = d.int64(0)
		case 2:
			o.Note = d.bytes()
		case 3:
			o.Parent = d.text("")
		case 4:
			o.Tenant = d.text("")
		case 5:
			o.Cost = time.Duration(d.int64(0))
		}
	})
	return o
}

// salvage reads what every version of the protocol has in a request, whatever else is in it: a map with an ID and an op, and in
// a Hello the version. What is not there is 0, and all is if one of them is there twice.
func salvage(body []byte) (id uint64, version int, hello bool) {
	n, rest, err := msgp.ReadMapHeaderBytes(body)
	if err != nil {
		return 0, 0, false
	}
	at := len(body) - len(rest)
	var seen set
	var given bool
	for range n {
		key, _, err := msgp.ReadStringZC(body[at:])
		if at, _ = next(body, at); err != nil {
			at, _ = next(body, at) // no text: another version's business
			continue
		}
		value := body[at:]
		at, _ = next(body, at)
		k := requestKeys.find(key)
		if k < 0 || k > qVersion {
			continue
		}
		if seen.has(k) {
			return 0, 0, false
		}
		seen |= 1 << k
		switch k {
		case qID:
			id, _, _ = msgp.ReadUint64Bytes(value)
		case qOp:
			op, _, _ := msgp.ReadStringZC(value)
			hello = string(op) == string(Hello)
		case qVersion:
			v, _, err := msgp.ReadUint64Bytes(value)
			version, given = int(min(v, math.MaxInt32)), err == nil
		}
	}
	return id, version, hello && given
}

// next returns where the value behind the one at a position begins, in a body that the guard has checked.
func next(body []byte, at int) (int, error) {
	return msgpackguard.Next(body, at, msgpackguard.Limits{Depth: maxDepth})
}
