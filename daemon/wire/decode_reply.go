package wire

import "math"

// DecodeReply reads the body of a frame into p, whose earlier contents go; the room of its list of items is used again. Texts and notes
// are memory of their own. The error is an *[Error] of [KindInvalid]: nothing more can be trusted on that connection. An
// error that the daemon sent is in p.Error, and not an error of DecodeReply.
func DecodeReply(body []byte, p *Reply) error {
	*p = Reply{Items: p.Items[:0]}
	var d decoder
	d.begin("reply", body)
	if d.err == nil {
		d.reply(p)
	}
	err := d.end()
	if err != nil {
		*p = Reply{}
	}
	return err
}

func (d *decoder) reply(p *Reply) {
	seen := d.fields(replyKeys, 0, func(n int) {
		switch n {
		case pID:
			p.ID = d.uint64()
		case pError:
			p.Error = d.error()
		case pVersion:
			p.Version = d.int()
		case pServer:
			p.Server = d.text("")
		case pSegment:
			p.Segment = d.segment()
		case pSpace:
			p.Space = d.text("")
		case pLimits:
			p.Limits = d.limits()
		case pItems:
			old := p.Items[:cap(p.Items)]
			d.list(math.MaxInt32, func(i int) {
				var before Item
				if i < len(old) {
					before = old[i]
				}
				p.Items = append(p.Items, d.item(before))
			})
		case pState:
			p.State = d.state()
		case pLeases:
			d.list(math.MaxInt32, func(int) { p.Leases = append(p.Leases, d.lease()) })
		case pClients:
			d.list(math.MaxInt32, func(int) { p.Clients = append(p.Clients, d.visitor()) })
		}
	})
	switch {
	case p.Error != nil && seen&^setOf(pID, pError) != 0:
		d.fail("an error and something else")
	case p.Error == nil && p.ID == 0:
		d.fail("an answer without an id")
	}
}

func (d *decoder) error() *Error {
	e := &Error{}
	d.fields(errorKeys, setOf(0), func(n int) {
		switch n {
		case 0:
			e.Kind = wordOf(d, kinds)
		case 1:
			e.Text = d.text("")
		}
	})
	return e
}

func (d *decoder) segment() *Segment {
	s := &Segment{}
	d.fields(segmentKeys, 0, func(n int) {
		switch n {
		case 0:
			s.Name = d.text("")
		case 1:
			s.Size = d.int64(0)
		case 2:
			s.Generation = d.uint64()
		case 3:
			s.Inode = d.uint64()
		}
	})
	return s
}

func (d *decoder) limits() *Limits {
	l := &Limits{}
	d.fields(limitsKeys, 0, func(n int) {
		switch n {
		case 0:
			l.Names = d.int()
		case 1:
			l.Seconds = d.uint32()
		case 2:
			l.Held = d.int64(0)
		case 3:
			l.Leases = d.int()
		}
	})
	return l
}

func (d *decoder) item(old Item) (v Item) {
	d.fields(itemKeys, setOf(0), func(n int) {
		switch n {
		case 0:
			v.Status = wordOf(d, statuses)
		case 1:
			v.Name = d.text(old.Name)
		case 2:
			v.Offset = d.uint64()
		case 3:
			v.Size = d.int64(0)
		case 4:
			v.Note = d.bytes()
		case 5:
			v.Levels = d.textList(nil, math.MaxInt32)
		}
	})
	return v
}

func (d *decoder) state() *State {
	s := &State{}
	d.fields(stateKeys, 0, func(n int) {
		switch n {
		case 0:
			d.list(math.MaxInt32, func(int) { s.Levels = append(s.Levels, d.level()) })
		case 1:
			s.Sessions = d.int()
		case 2:
			s.Leases = d.int()
		case 3:
			s.Pending = d.int()
		case 4:
			s.Owed = d.int()
		case 5:
			s.Clearing = d.bool()
		case 6:
			s.Seconds = d.int64(0)
		case 7:
			s.Hits = d.int64(0)
		case 8:
			s.Misses = d.int64(0)
		case 9:
			s.Stored = d.int64(0)
		case 10:
			s.Recent = d.use()
		}
	})
	return s
}

func (d *decoder) use() *Use {
	u := &Use{}
	d.fields(useKeys, 0, func(n int) {
		*[...]*int64{&u.Seconds, &u.Hits, &u.Misses, &u.Stored}[n] = d.int64(0)
	})
	return u
}

func (d *decoder) visitor() (v ClientState) {
	d.fields(clientStateKeys, setOf(0), func(n int) {
		switch n {
		case 0:
			v.Session = d.text("")
		case 1:
			v.Client = d.text("")
		case 2:
			v.PID = d.int()
		case 3:
			v.Space = d.text("")
		default:
			*[...]*int64{&v.Seconds, &v.Idle, &v.Hits, &v.Misses, &v.Stored}[n-4] = d.int64(0)
		}
	})
	return v
}

func (d *decoder) level() (l Level) {
	d.fields(levelKeys, setOf(0), func(n int) {
		switch n {
		case 0:
			l.Name = d.text("")
		case 1:
			l.Away = d.bool()
		case 2:
			l.Objects = d.int64(-1)
		case 3:
			l.Bytes = d.int64(-1)
		case 4:
			l.Capacity = d.int64(-1)
		case 5:
			l.Held = d.int64(-1)
		case 6:
			l.Owed = d.int()
		}
	})
	return l
}

func (d *decoder) lease() (l Lease) {
	d.fields(leaseKeys, setOf(0), func(n int) {
		switch n {
		case 0:
			l.Name = d.text("")
		case 1:
			l.Client = d.text("")
		case 2:
			l.PID = d.int()
		case 3:
			l.Seconds = d.int64(-1)
		case 4:
			l.Pinned = d.int()
		case 5:
			l.Reserved = d.int()
		case 6:
			l.Bytes = d.int64(0)
		case 7:
			l.Waiting = d.bool()
		}
	})
	return l
}
