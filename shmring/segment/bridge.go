package segment

import "github.com/ringcache/ringcache/internal/sidecar"

func init() { //nolint:gochecknoinits // it sets functions, and does nothing else
	sidecar.Of = func(s any) *sidecar.File { return s.(*Segment).sidecar }
	sidecar.Matches = func(s any, f *sidecar.File) bool {
		return s.(*Segment).file != nil && f.Describes(s.(*Segment).file)
	}
	sidecar.Explain = func(s any, err error, others ...*sidecar.File) error { return s.(*Segment).explain(err, others) }
}
