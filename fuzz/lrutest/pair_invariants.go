package lrutest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/fuzz"
)

// mostAsked is how often a request may be sent until it has its values: once; again after what
// was missed; and once more, since a report of drift may have emptied the mirror in between.
const mostAsked = 3

// soonEqual is after how many messages in order both ends are equal again.
const soonEqual = 3

// PairInvariants returns what must hold for a mirrored pair after every message. same-as-vllm is off
// unless [Options].Release switches it on.
func PairInvariants() []fuzz.Invariant[PairStep] {
	return []fuzz.Invariant[PairStep]{
		{Name: "right-values", Why: "a value of another key is wrong data, and shows no error", Holds: rightValues},
		{Name: "lockstep", Why: "a mirror that differs from what it mirrors leaves out what is not there, or sends what is", Holds: lockstep},
		{Name: "nothing-missing", Why: "while the link keeps order no request has to be sent twice",
			Holds: nothingMissing},
		{Name: "nothing-sent-twice", Why: "not to send what is there is what a mirror is for", Holds: nothingSentTwice},
		{Name: "refused-leaves-no-trace", Why: "a mirror that counts what was never sent is ahead of the receiver",
			Holds: refusedLeavesNoTrace},
		{Name: "what-can-is-sent", Why: "a request that fits, with its data at hand, has to go out, and its sender has to say so", Holds: whatCanIsSent},
		{Name: "requests-end", Why: "after a drift, a request that misses something must get its values when it is sent again", Holds: requestsEnd},
		{Name: "equal-again", Why: "a drift that is not repaired costs a miss again and again", Holds: equalAgain},
		{Name: "within-capacity", Why: "the capacity is memory that someone else counts on", Holds: withinCapacity},
		{Name: sameAsVLLMName, Why: "the other end can be vLLM's own", Holds: pairSameAsVLLM},
	}
}

func rightValues(s PairStep) error {
	for i, key := range s.Message.Keys {
		if !s.Arrived || slices.Contains(s.Answer.Missing, key) {
			continue
		}
		switch {
		case i >= len(s.Answer.Values):
			return fmt.Errorf("%q has no value, and is not missing", key)
		case !bytes.Equal(s.Answer.Values[i], valueOf(key)):
			return fmt.Errorf("the value of %q is %q, want %q", key, s.Answer.Values[i], valueOf(key))
		}
	}
	return nil
}

func lockstep(s PairStep) error {
	if s.Kept && s.Waiting == 0 && !sameEntries(s.Sender, s.Receiver) {
		return fmt.Errorf("the sender lists %v, the receiver %v", s.Sender, s.Receiver)
	}
	return nil
}

// sameEntries compares what both ends list, pins aside.
func sameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool { return x.Key == y.Key && x.Size == y.Size })
}

func nothingMissing(s PairStep) error {
	if s.Kept && len(s.Answer.Missing) > 0 {
		return fmt.Errorf("%q is missing, and the link has lost nothing", s.Answer.Missing)
	}
	return nil
}

// nothingSentTwice holds for requests that fit as a whole: in others an item can push out one
// that comes later. Where vLLM does not touch first, it can do so in all.
func nothingSentTwice(s PairStep) error {
	if !s.Kept || !s.Arrived || s.Waiting > 0 || s.Asked > 1 || !s.Touches {
		return nil
	}
	if !fits(s) {
		return nil
	}
	there := map[string]bool{}
	for _, e := range s.ReceiverBefore {
		there[e.Key] = true
	}
	for i, key := range s.Message.Keys {
		if there[key] && !s.Message.Omitted[i] {
			return fmt.Errorf("the data of %q was sent, and the receiver has it", key)
		}
		there[key] = true
	}
	return nil
}

// fits reports whether the items of a request have room beside each other.
func fits(s PairStep) bool {
	sum := 0
	seen := map[string]bool{}
	for _, key := range s.Message.Keys {
		if !seen[key] {
			sum += len(valueOf(key))
		}
		seen[key] = true
	}
	return float64(sum) <= s.Capacity
}

func whatCanIsSent(s PairStep) error {
	for _, key := range s.Need {
		if !slices.Contains(s.Lacking, key) {
			return fmt.Errorf("the data of %q is asked for, and was there", key)
		}
	}
	switch {
	case s.Refused == nil && !s.Taken:
		return errors.New("the sender reports no error, and the link has got nothing")
	case s.Refused != nil && s.Taken:
		return fmt.Errorf("the link has got the message, and the sender reports %w", s.Refused)
	case s.Refused != nil && len(s.Need) == 0 && !errors.Is(s.Refused, errRefused) && fits(s):
		return fmt.Errorf("a request that fits is refused: %w", s.Refused)
	}
	return nil
}

func refusedLeavesNoTrace(s PairStep) error {
	if s.Refused != nil && !sameEntries(s.SenderBefore, s.Sender) {
		return fmt.Errorf("%v; before the sender listed %v, and now %v", s.Refused, s.SenderBefore, s.Sender)
	}
	return nil
}

func requestsEnd(s PairStep) error {
	if s.Arrived && s.Asked >= mostAsked && len(s.Answer.Missing) > 0 {
		return fmt.Errorf("%q is missing when the request is sent for the %d. time, with all data at hand",
			s.Answer.Missing, s.Asked)
	}
	return nil
}

func equalAgain(s PairStep) error {
	if s.Arrived && !s.Kept && s.Waiting == 0 && s.Quiet > soonEqual && !sameEntries(s.Sender, s.Receiver) {
		return fmt.Errorf("%d messages after the last loss the sender lists %v, the receiver %v", s.Quiet, s.Sender,
			s.Receiver)
	}
	return nil
}

func withinCapacity(s PairStep) error {
	for name, entries := range map[string][]Entry{"sender": s.Sender, "receiver": s.Receiver} {
		var sum int64
		for _, e := range entries {
			sum += e.Size
		}
		if float64(sum) > s.Capacity {
			return fmt.Errorf("the %s lists %d bytes in a cache of %g", name, sum, s.Capacity)
		}
	}
	return nil
}

func pairSameAsVLLM(s PairStep) error {
	if s.Upstream == nil {
		return nil
	}
	got := make([]string, len(s.Receiver))
	for i, e := range s.Receiver {
		got[i] = e.Key
	}
	if !slices.Equal(got, s.Upstream) {
		return fmt.Errorf("the receiver lists %q, vLLM's %q", got, s.Upstream)
	}
	return nil
}
