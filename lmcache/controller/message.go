package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// message is a message of LMCache's controller (lmcache/v1/cache_controller/message.py of 0.5.6), of any
// class that comes in: a field has one type in all of them. On the wire it is a map, and the field type names
// the class.
type message struct {
	Type        string      `json:"type"`
	InstanceID  string      `json:"instance_id"`
	WorkerID    int64       `json:"worker_id"`
	IP          string      `json:"ip"`
	Port        int64       `json:"port"`
	PeerInitURL *string     `json:"peer_init_url"`
	Key         chunkHash   `json:"key"`
	SeqNum      int64       `json:"seq_num"`
	Location    string      `json:"location"`
	Operations  []operation `json:"operations"`
	SyncID      string      `json:"sync_id"`
	BatchID     int64       `json:"batch_id"`
	BatchCount  int64       `json:"batch_count"`
	TotalKeys   int64       `json:"total_keys"`
	ActualTotal int64       `json:"actual_total_keys"`
	Keys        []chunkHash `json:"keys"`
	Hashes      []chunkHash `json:"hashes"`
	EventID     string      `json:"event_id"`
	Tokens      []int64     `json:"tokens"`
	WorkerIDs   []int64     `json:"worker_ids"`
	NumTokens   int64       `json:"num_tokens"`
	ErrorCode   int64       `json:"error_code"`
	Error       string      `json:"error"`
	present     map[string]bool
}

type operation struct {
	Type   string    `json:"op_type"`
	Key    chunkHash `json:"key"`
	SeqNum int64     `json:"seq_num"`
}

// chunkHash is a hash that Python has as an int: from -1<<63 to 1<<64 - 1.
type chunkHash uint64

// UnmarshalJSON reads an int.
func (h *chunkHash) UnmarshalJSON(b []byte) error {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*h = chunkHash(n)
		return nil
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	*h = chunkHash(n)
	return err
}

// required are the fields that a class has besides type, but those with a default. Classes that are not in it are not
// taken.
var required = map[string][]string{
	"RegisterMsg":           {"instance_id", "worker_id", "ip", "port", "peer_init_url"},
	"DeRegisterMsg":         {"instance_id", "worker_id", "ip", "port"},
	"KVAdmitMsg":            {"instance_id", "worker_id", "key", "location"},
	"KVEvictMsg":            {"instance_id", "worker_id", "key", "location"},
	"BatchedKVOperationMsg": {"instance_id", "worker_id", "location", "operations"},
	"FullSyncStartMsg":      {"instance_id", "worker_id", "location", "sync_id", "total_keys", "batch_count"},
	"FullSyncBatchMsg":      {"instance_id", "worker_id", "location", "sync_id", "batch_id", "keys"},
	"FullSyncEndMsg":        {"instance_id", "worker_id", "location", "sync_id", "actual_total_keys"},
	"FullSyncStatusMsg":     {"instance_id", "worker_id", "sync_id"},
	"HeartbeatMsg":          {"instance_id", "worker_id", "ip", "port", "peer_init_url"},
	"BatchedP2PLookupMsg":   {"hashes", "instance_id", "worker_id"},
	"QueryInstMsg":          {"event_id", "ip"},
	"LookupMsg":             {"event_id", "tokens"},
	"ClearMsg":              {"event_id", "instance_id", "location"},
	"PinMsg":                {"event_id", "instance_id", "location", "tokens"},
	"CompressMsg":           {"event_id", "instance_id", "method", "location"},
	"DecompressMsg":         {"event_id", "instance_id", "method", "location"},
	"MoveMsg":               {"event_id", "old_position", "new_position"},
	"HealthMsg":             {"event_id", "instance_id"},
	"CheckFinishMsg":        {"event_id"},
	"QueryWorkerInfoMsg":    {"event_id", "instance_id", "worker_ids"},
	"ClearWorkerRetMsg":     {"num_tokens"},
	"PinWorkerRetMsg":       {"num_tokens"},
	"HealthWorkerRetMsg":    {"error_code"},
	"ErrorMsg":              {"error"},
}

// parse reads a message, as MessagePack or, as LMCache takes it too, as JSON.
func parse(b []byte) (*message, error) {
	m := &message{present: map[string]bool{}}
	var err error
	if bytes.HasPrefix(b, []byte("{")) {
		err = m.parseJSON(b)
	} else if err = msgpackguard.Check(b, msgpackguard.Limits{Depth: 8}); err == nil {
		err = m.parseMsgpack(b)
	}
	if err == nil && !m.isText() {
		err = errors.New("a text is no UTF-8, and every answer that had it could not be read")
	}
	if err != nil {
		return nil, invalid("message: %v", err)
	}
	fields, known := required[m.Type]
	if !known {
		return nil, invalid("message: class %.40q is not known", m.Type)
	}
	for _, f := range fields {
		if !m.present[f] {
			return nil, invalid("message: %s has no %s", m.Type, f)
		}
	}
	for i, op := range m.Operations {
		if op.Type != "admit" && op.Type != "evict" {
			return nil, invalid("message: operation %d is %.40q", i, op.Type)
		}
	}
	return m, nil
}

// isText reports whether the texts are that may stand in answers.
func (m *message) isText() bool {
	return utf8.ValidString(m.InstanceID) && utf8.ValidString(m.IP) && utf8.ValidString(m.Location) &&
		utf8.ValidString(m.SyncID) && utf8.ValidString(m.EventID) && utf8.ValidString(m.Error) &&
		(m.PeerInitURL == nil || utf8.ValidString(*m.PeerInitURL))
}

// Bounds of lists: an element takes more room than its text.
const (
	maxJSON        = 256 << 10
	maxList        = 1 << 20
	leastNumber    = 1 // bytes
	leastHash      = 1
	leastOperation = 24 // bytes of an operation: three names, a text and two numbers
)

func (m *message) parseJSON(b []byte) error {
	if len(b) > maxJSON {
		return fmt.Errorf("%d bytes of JSON; %d are the most", len(b), maxJSON)
	}
	var names map[string]json.RawMessage
	if err := json.Unmarshal(b, &names); err != nil {
		return err
	}
	for name, value := range names {
		m.present[name] = true
		if string(value) == "null" && !slices.Contains(optional, name) {
			return fmt.Errorf("%.40q is null", name)
		}
	}
	return json.Unmarshal(b, m)
}

// optional are the fields that may be null.
var optional = []string{"peer_init_url", "tokens", "worker_ids", "copy"}

// parseMsgpack reads a document that is well-formed.
func (m *message) parseMsgpack(b []byte) error {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	for ; n > 0 && err == nil; n-- {
		var name []byte
		if name, b, err = msgp.ReadStringZC(b); err != nil {
			return err
		}
		at := b
		if slices.Contains(optional, string(name)) && msgp.IsNil(b) {
			b, err = msgp.Skip(b)
		} else {
			b, err = m.field(string(name), b)
		}
		if err != nil {
			return fmt.Errorf("%.40q, of type %v: %w", name, msgp.NextType(at), err)
		}
		m.present[string(name)] = true
	}
	return err
}

// field reads the value of one field. One that is not known is passed over, as LMCache does.
func (m *message) field(name string, b []byte) (rest []byte, err error) {
	texts := map[string]*string{
		"type": &m.Type, "instance_id": &m.InstanceID, "ip": &m.IP, "location": &m.Location,
		"sync_id": &m.SyncID, "event_id": &m.EventID, "error": &m.Error,
	}
	numbers := map[string]*int64{
		"worker_id": &m.WorkerID, "port": &m.Port, "seq_num": &m.SeqNum,
		"batch_id": &m.BatchID, "batch_count": &m.BatchCount, "total_keys": &m.TotalKeys,
		"actual_total_keys": &m.ActualTotal, "num_tokens": &m.NumTokens, "error_code": &m.ErrorCode,
	}
	if p := texts[name]; p != nil {
		*p, rest, err = msgp.ReadStringBytes(b)
		return rest, err
	}
	if p := numbers[name]; p != nil {
		*p, rest, err = msgp.ReadInt64Bytes(b)
		return rest, err
	}
	switch name {
	case "peer_init_url":
		var text string
		text, rest, err = msgp.ReadStringBytes(b)
		m.PeerInitURL = &text
		return rest, err
	case "key":
		return readHash(b, &m.Key)
	case "keys":
		return readList(b, &m.Keys, leastHash, readHash)
	case "hashes":
		return readList(b, &m.Hashes, leastHash, readHash)
	case "tokens":
		return readList(b, &m.Tokens, leastNumber, readNumber)
	case "worker_ids":
		return readList(b, &m.WorkerIDs, leastNumber, readNumber)
	case "operations":
		return readList(b, &m.Operations, leastOperation, readOperation)
	}
	return msgp.Skip(b)
}

// readList reads a list whose elements have so many bytes at least.
func readList[T any](b []byte, list *[]T, least int, read func([]byte, *T) ([]byte, error)) ([]byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return b, err
	}
	if n > maxList || int(n) > len(b)/least {
		return b, fmt.Errorf("a list of %d elements in %d bytes", n, len(b))
	}
	*list = make([]T, n)
	for i := range *list {
		if b, err = read(b, &(*list)[i]); err != nil {
			return b, err
		}
	}
	return b, nil
}

func readNumber(b []byte, n *int64) (rest []byte, err error) {
	*n, rest, err = msgp.ReadInt64Bytes(b)
	return rest, err
}

func readHash(b []byte, h *chunkHash) (rest []byte, err error) {
	if msgp.NextType(b) == msgp.UintType {
		var n uint64
		n, rest, err = msgp.ReadUint64Bytes(b)
		*h = chunkHash(n)
		return rest, err
	}
	var n int64
	n, rest, err = msgp.ReadInt64Bytes(b)
	*h = chunkHash(n)
	return rest, err
}

func readOperation(b []byte, op *operation) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	present := 0
	for ; n > 0 && err == nil; n-- {
		var name []byte
		if name, b, err = msgp.ReadStringZC(b); err != nil {
			return b, err
		}
		present++
		switch string(name) {
		case "op_type":
			op.Type, b, err = msgp.ReadStringBytes(b)
		case "key":
			b, err = readHash(b, &op.Key)
		case "seq_num":
			op.SeqNum, b, err = msgp.ReadInt64Bytes(b)
		default:
			present--
			b, err = msgp.Skip(b)
		}
	}
	if err == nil && present != 3 {
		err = fmt.Errorf("an operation has %d of the fields op_type, key and seq_num", present)
	}
	return b, err
}

// fields appends what goes out: a map whose first field is type.
type fields struct {
	b []byte
}

// begin begins a message of a class with so many fields besides type.
func begin(class string, n uint32) *fields {
	return &fields{msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, n+1), "type"), class)}
}

func (f *fields) text(name, value string) *fields {
	f.b = msgp.AppendString(msgp.AppendString(f.b, name), value)
	return f
}

// textOrNil appends None for the empty text.
func (f *fields) textOrNil(name, value string) *fields {
	if value != "" {
		return f.text(name, value)
	}
	f.b = msgp.AppendNil(msgp.AppendString(f.b, name))
	return f
}

func (f *fields) number(name string, n int64) *fields {
	f.b = appendInt(msgp.AppendString(f.b, name), n)
	return f
}

func (f *fields) float(name string, x float64) *fields {
	f.b = msgp.AppendFloat64(msgp.AppendString(f.b, name), x)
	return f
}

func (f *fields) truth(name string, x bool) *fields {
	f.b = msgp.AppendBool(msgp.AppendString(f.b, name), x)
	return f
}

func (f *fields) list(name string, n int) *fields {
	f.b = msgp.AppendArrayHeader(msgp.AppendString(f.b, name), uint32(n))
	return f
}

func (f *fields) dict(name string, n int) *fields {
	f.b = msgp.AppendMapHeader(msgp.AppendString(f.b, name), uint32(n))
	return f
}

func (f *fields) numbers(name string, all []int64) *fields {
	f.list(name, len(all))
	for _, n := range all {
		f.b = appendInt(f.b, n)
	}
	return f
}

// appendInt appends an int as msgspec does: as an unsigned one, unless it is negative.
func appendInt(b []byte, n int64) []byte {
	if n >= 0 {
		return msgp.AppendUint64(b, uint64(n))
	}
	return msgp.AppendInt64(b, n)
}

func errorMsg(err error) []byte {
	text := err.Error()
	return begin("ErrorMsg", 1).text("error", strings.ToValidUTF8(text[:min(len(text), math.MaxUint16)], "?")).b
}
