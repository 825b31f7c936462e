package lrutest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/fuzz/model"
)

// PairStep is what happened to one message, or to a request that was not sent.
type PairStep struct {
	Capacity float64 // bytes
	Op       fuzz.Op // that led to it
	Message  Message
	Answer   Answer
	// Arrived reports that the receiver has got the message. Asked counts how often the request
	// was sent, 1 the first time.
	Arrived bool
	Asked   int
	// Refused is why nothing was sent: the link's error, the sender's, or what it needs. Lacking
	// are the keys whose data is not at hand, Need those that the sender asked for. Taken reports
	// that the link has got the message.
	Refused       error
	Lacking, Need []string
	Taken         bool
	// Kept reports that the link has kept order, and lost nothing, since both ends were made or
	// cleared; Quiet counts the messages that it has delivered in order since something went wrong.
	Kept  bool
	Quiet int
	// Waiting counts the messages that are on their way: the receiver is so much behind.
	Waiting int
	// What both ends list, and what the sender had listed before.
	SenderBefore, Sender     []Entry
	ReceiverBefore, Receiver []Entry
	// Upstream is what vLLM's receiver would list, while the order is kept; Touches reports that
	// it touches all items of a request before it takes the first.
	Upstream []string
	Touches  bool
}

// link performs the operations of a sequence, those of the package's documentation, on one pair.
type link struct {
	new     NewPair
	release model.Release
	check   func(PairStep) *fuzz.Failure

	capacity float64
	sender   Sender
	receiver Receiver
	upstream *model.Pair
	waiting  []message
	kept     bool
	quiet    int

	disturbed int // how often it lost or reordered something
}

// message is one on its way.
type message struct {
	Message
	clear bool
	asked int // how often the request was sent
	// disturbed is how often the link had lost or reordered something when the message was sent.
	disturbed int
}

var errRefused = errors.New("the link refused the message")

// valueOf returns the value of a key: the later its letter, the longer, and h exceeds the cache.
func valueOf(key string) []byte {
	n := int(key[0]-'a') + 1
	if key == "h" {
		n = 50
	}
	return bytes.Repeat([]byte(key[:1]), n)
}

func (l *link) perform(op fuzz.Op) *fuzz.Failure {
	if op.Name == "link.new" {
		return l.begin(op)
	}
	if l.sender == nil {
		return nil // minimizing left it out
	}
	switch op.Name {
	case "link.send":
		return l.send(op, 1, nil)
	case "link.deliver":
		if len(l.waiting) == 0 {
			return nil
		}
		return l.deliverNth(op, int(number(op.Args["nth"]))%len(l.waiting))
	case "link.clear":
		return l.clear(op)
	case "link.restart":
		_, l.receiver = l.new(l.capacity)
		l.disturb()
	}
	return nil
}

func (l *link) begin(op fuzz.Op) *fuzz.Failure {
	l.capacity = number(op.Args["capacity"])
	l.sender, l.receiver = l.new(l.capacity)
	l.waiting, l.kept, l.quiet = nil, true, 0
	l.emptyUpstream()
	return nil
}

func (l *link) emptyUpstream() {
	l.upstream = model.NewPair(l.release, model.CacheOptions{})
	_, _ = l.upstream.Do([]fuzz.Op{{Name: "pair.new",
		Args: map[string]any{"pair": "r", "role": "receiver", "capacity": l.capacity}}})
}

// disturb takes note that the ends may differ from now on.
func (l *link) disturb() {
	l.kept, l.quiet = false, 0
	l.disturbed++
}

// step begins a report.
func (l *link) step(op fuzz.Op) PairStep {
	return PairStep{
		Capacity: l.capacity, Op: op, SenderBefore: l.sender.Contents(), ReceiverBefore: l.receiver.Contents(),
		Touches: l.release.Touch,
	}
}

// end completes a report and checks it.
func (l *link) end(s PairStep) *fuzz.Failure {
	s.Sender, s.Receiver = l.sender.Contents(), l.receiver.Contents()
	s.Kept, s.Quiet, s.Waiting = l.kept, l.quiet, len(l.waiting)
	return l.check(s)
}

// send makes a request, for the asked-th time. extra are keys whose data was missing.
func (l *link) send(op fuzz.Op, asked int, extra []string) *fuzz.Failure {
	keys, _ := op.Args["keys"].([]any)
	lack, _ := op.Args["lack"].([]any)
	s := l.step(op)
	s.Asked = asked
	var items []Item
	for i, k := range keys {
		key := k.(string)
		it := Item{Key: key, Value: valueOf(key), Size: int64(len(valueOf(key)))}
		lacks := slices.ContainsFunc(lack, func(n any) bool { return int(number(n)) == i })
		if lacks && asked == 1 && !slices.Contains(extra, key) {
			it.Value = nil
			s.Lacking = append(s.Lacking, key)
		}
		items = append(items, it)
	}
	fate, _ := op.Args["fate"].(string)
	if asked > 1 {
		fate = "now"
	}
	var sent *Message
	need, err := l.sender.Send(items, func(m Message) error {
		if fate == "refuse" {
			return errRefused
		}
		sent = &m
		return nil
	})
	if need != nil && err == nil {
		err = fmt.Errorf("the data of %q is needed", need)
	}
	if s.Need, s.Taken = need, sent != nil; err != nil || sent == nil {
		s.Message.Keys, s.Refused = keysOf(items), err
		if f := l.refused(s); f != nil || need == nil || len(extra) > 10 {
			return f
		}
		return l.send(op, asked, append(extra, need...))
	}
	s.Message = *sent
	switch fate {
	case "wait":
		l.waiting = append(l.waiting, message{*sent, false, asked, l.disturbed})
		return l.end(s)
	case "lose":
		l.disturb()
		return l.end(s)
	case "overtake":
		if len(l.waiting) > 0 {
			l.disturb()
		}
		return l.deliver(op, message{*sent, false, asked, l.disturbed})
	}
	return l.deliverLast(op, message{*sent, false, asked, l.disturbed})
}

func keysOf(items []Item) []string {
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.Key
	}
	return keys
}

// refused ends a report of what was not sent. A sender that kept a trace of it has drifted.
func (l *link) refused(s PairStep) *fuzz.Failure {
	if !sameEntries(s.SenderBefore, l.sender.Contents()) {
		l.disturb()
	}
	return l.end(s)
}

// deliverLast delivers all that wait, and then m.
func (l *link) deliverLast(op fuzz.Op, m message) *fuzz.Failure {
	for l.waiting = append(l.waiting, m); len(l.waiting) > 0; {
		if f := l.deliverNth(op, 0); f != nil {
			return f
		}
	}
	return nil
}

func (l *link) deliverNth(op fuzz.Op, nth int) *fuzz.Failure {
	m := l.waiting[nth]
	if nth != 0 {
		l.disturb()
	}
	l.waiting = slices.Delete(slices.Clone(l.waiting), nth, nth+1)
	return l.deliver(op, m)
}

// deliver hands a message to the receiver, and the answer to the sender. A request that missed
// something is sent again, with all data.
func (l *link) deliver(op fuzz.Op, m message) *fuzz.Failure {
	s := l.step(op)
	s.Message, s.Taken, s.Arrived, s.Asked = m.Message, true, true, m.asked
	s.Answer = l.receiver.Receive(m.Message)
	l.quiet++
	l.sender.Answered(m.Message, s.Answer)
	switch {
	case m.clear:
		if l.emptyUpstream(); len(l.waiting) == 0 && m.disturbed == l.disturbed {
			l.kept = true // nothing overtook it, and both ends begin anew
		}
	case l.kept:
		s.Upstream = l.asUpstream(m.Message)
	}
	if f := l.end(s); f != nil || len(s.Answer.Missing) == 0 || m.asked > mostAsked || m.clear {
		return f
	}
	keys := make([]any, len(m.Keys))
	for i, k := range m.Keys {
		keys[i] = k
	}
	return l.send(fuzz.Op{Name: "link.send", Args: map[string]any{"keys": keys, "fate": "now"}}, m.asked+1, nil)
}

// asUpstream has vLLM's receiver take the message, and lists what is there then.
func (l *link) asUpstream(m Message) []string {
	features := []any{}
	for i, key := range m.Keys {
		f := map[string]any{"key": key, "value": nil}
		if !m.Omitted[i] {
			data := map[string]any{"dtype": "uint8", "shape": []any{len(valueOf(key))},
				"hex": fmt.Sprintf("%x", valueOf(key))}
			f["value"] = map[string]any{"type": "tensor", "data": data}
		}
		features = append(features, f)
	}
	replies, err := l.upstream.Do([]fuzz.Op{
		{Name: "pair.features", Args: map[string]any{"pair": "r", "features": features}},
		{Name: "pair.state", Args: map[string]any{"pair": "r"}},
	})
	if err != nil {
		panic(err) // only the model can be wrong
	}
	return replies[1].Fields["order"].([]string)
}

func (l *link) clear(op fuzz.Op) *fuzz.Failure {
	c, ok := l.sender.(ClearingSender)
	if !ok {
		return nil
	}
	s := l.step(op)
	var sent *Message
	err := c.Clear(func(m Message) error {
		if op.Args["fate"] == "refuse" {
			return errRefused
		}
		sent = &m
		return nil
	})
	if s.Taken = sent != nil; err != nil || sent == nil {
		s.Refused = err
		return l.refused(s)
	}
	s.Message = *sent
	if op.Args["fate"] == "wait" {
		l.waiting = append(l.waiting, message{*sent, true, 1, l.disturbed})
		return l.end(s)
	}
	return l.deliverLast(op, message{*sent, true, 1, l.disturbed})
}
