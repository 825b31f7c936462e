package system

import (
	"github.com/ringcache/ringcache/agent"
	"github.com/ringcache/ringcache/fuzz"
)

// Agent returns the packages of this module, driven through package agent in this process.
func Agent() fuzz.System { return inProcess{agent.New()} }

type inProcess struct{ agent *agent.Agent }

func (s inProcess) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	replies := make([]fuzz.Reply, 0, len(ops))
	for _, op := range ops {
		r, err := parseReply(s.agent.Do([]byte(op.Line())))
		if err != nil {
			return replies, &BrokenError{Done: len(replies), Err: err}
		}
		replies = append(replies, r)
	}
	return replies, nil
}

func (s inProcess) Close() error { return s.agent.Close() }
