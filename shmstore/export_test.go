package shmstore

import "github.com/ringcache/ringcache/shmring/segment"

// SegmentOptions returns the options of the segment that Create makes.
func (o Options) SegmentOptions() segment.Options { return o.segment() }
