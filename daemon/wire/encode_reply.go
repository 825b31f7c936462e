package wire

func (e *encoding) reply(p *Reply) {
	var s set
	s.when(pID, p.ID != 0)
	s.when(pError, p.Error != nil)
	s.when(pVersion, p.Version != 0)
	s.when(pServer, p.Server != "")
	s.when(pSegment, p.Segment != nil)
	s.when(pSpace, p.Space != "")
	s.when(pLimits, p.Limits != nil)
	s.when(pItems, len(p.Items) > 0)
	s.when(pState, p.State != nil)
	s.when(pLeases, len(p.Leases) > 0)
	s.when(pClients, len(p.Clients) > 0)
	switch {
	case p.Error != nil && s&^setOf(pID, pError) != 0:
		e.fail("error", "there is something else in the reply")
	case p.Error == nil && p.ID == 0:
		e.fail("id", "it is missing")
	}
	e.fields(replyKeys, s, func(n int, k string) {
		switch n {
		case pID:
			e.uint(p.ID)
		case pError:
			e.error(p.Error)
		case pVersion:
			e.small(k, p.Version)
		case pServer:
			e.text(k, p.Server)
		case pSegment:
			e.segment(p.Segment)
		case pSpace:
			e.text(k, p.Space)
		case pLimits:
			e.limits(p.Limits)
		case pItems:
			e.list(len(p.Items))
			for i := range p.Items {
				e.item(&p.Items[i])
			}
		case pState:
			e.state(p.State)
		case pLeases:
			e.list(len(p.Leases))
			for i := range p.Leases {
				e.lease(&p.Leases[i])
			}
		case pClients:
			e.list(len(p.Clients))
			for i := range p.Clients {
				e.visitor(&p.Clients[i])
			}
		}
	})
}

func (e *encoding) error(v *Error) {
	s := setOf(0)
	s.when(1, v.Text != "")
	e.fields(errorKeys, s, func(n int, k string) {
		switch n {
		case 0:
			oneOf(e, k, kinds, v.Kind)
		case 1:
			e.text(k, readable(v.Text))
		}
	})
}

// oneOf writes a word that the other side knows.
func oneOf[T ~string](e *encoding, k string, known []T, w T) {
	for _, v := range known {
		if v == w {
			e.b = append(e.b, byte(0xa0|len(w))) // a text of less than 32 bytes
			e.b = append(e.b, w...)
			return
		}
	}
	e.fail(k, "%.64q is unknown, want one of %q", w, known)
}

func (e *encoding) segment(v *Segment) {
	var s set
	s.when(0, v.Name != "")
	s.when(1, v.Size != 0)
	s.when(2, v.Generation != 0)
	s.when(3, v.Inode != 0)
	e.fields(segmentKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.text(k, v.Name)
		case 1:
			e.size(k, v.Size)
		case 2:
			e.uint(v.Generation)
		case 3:
			e.uint(v.Inode)
		}
	})
}

func (e *encoding) limits(v *Limits) {
	var s set
	s.when(0, v.Names != 0)
	s.when(1, v.Seconds != 0)
	s.when(2, v.Held != 0)
	s.when(3, v.Leases != 0)
	e.fields(limitsKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.small(k, v.Names)
		case 1:
			e.uint(uint64(v.Seconds))
		case 2:
			e.size(k, v.Held)
		case 3:
			e.small(k, v.Leases)
		}
	})
}

func (e *encoding) item(v *Item) {
	s := setOf(0)
	s.when(1, v.Name != "")
	s.when(2, v.Offset != 0)
	s.when(3, v.Size != 0)
	s.when(4, len(v.Note) > 0)
	s.when(5, len(v.Levels) > 0)
	e.fields(itemKeys, s, func(n int, k string) {
		switch n {
		case 0:
			oneOf(e, k, statuses, v.Status)
		case 1:
			e.text(k, v.Name)
		case 2:
			e.uint(v.Offset)
		case 3:
			e.size(k, v.Size)
		case 4:
			e.bytes(v.Note)
		case 5:
			e.texts(k, v.Levels)
		}
	})
}

func (e *encoding) state(v *State) {
	var s set
	s.when(0, len(v.Levels) > 0)
	s.when(1, v.Sessions != 0)
	s.when(2, v.Leases != 0)
	s.when(3, v.Pending != 0)
	s.when(4, v.Owed != 0)
	s.when(5, v.Clearing)
	s.when(6, v.Seconds != 0)
	s.when(7, v.Hits != 0)
	s.when(8, v.Misses != 0)
	s.when(9, v.Stored != 0)
	s.when(10, v.Recent != nil)
	e.fields(stateKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.list(len(v.Levels))
			for i := range v.Levels {
				e.level(&v.Levels[i])
			}
		case 1:
			e.small(k, v.Sessions)
		case 2:
			e.small(k, v.Leases)
		case 3:
			e.small(k, v.Pending)
		case 4:
			e.small(k, v.Owed)
		case 5:
			e.bool(true)
		case 6:
			e.size(k, v.Seconds)
		case 7:
			e.size(k, v.Hits)
		case 8:
			e.size(k, v.Misses)
		case 9:
			e.size(k, v.Stored)
		case 10:
			e.use(v.Recent)
		}
	})
}

func (e *encoding) use(v *Use) {
	var s set
	s.when(0, v.Seconds != 0)
	s.when(1, v.Hits != 0)
	s.when(2, v.Misses != 0)
	s.when(3, v.Stored != 0)
	e.fields(useKeys, s, func(n int, k string) {
		e.size(k, [...]int64{v.Seconds, v.Hits, v.Misses, v.Stored}[n])
	})
}

func (e *encoding) visitor(v *ClientState) {
	s := setOf(0)
	s.when(1, v.Client != "")
	s.when(2, v.PID != 0)
	s.when(3, v.Space != "")
	s.when(4, v.Seconds != 0)
	s.when(5, v.Idle != 0)
	s.when(6, v.Hits != 0)
	s.when(7, v.Misses != 0)
	s.when(8, v.Stored != 0)
	e.fields(clientStateKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.text(k, v.Session)
		case 1:
			e.text(k, v.Client)
		case 2:
			e.small(k, v.PID)
		case 3:
			e.text(k, v.Space)
		default:
			e.size(k, [...]int64{v.Seconds, v.Idle, v.Hits, v.Misses, v.Stored}[n-4])
		}
	})
}

func (e *encoding) level(v *Level) {
	s := setOf(0)
	s.when(1, v.Away)
	s.when(2, v.Objects != 0)
	s.when(3, v.Bytes != 0)
	s.when(4, v.Capacity != 0)
	s.when(5, v.Held != 0)
	s.when(6, v.Owed != 0)
	e.fields(levelKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.text(k, v.Name)
		case 1:
			e.bool(true)
		case 2:
			e.orUnknown(k, v.Objects)
		case 3:
			e.orUnknown(k, v.Bytes)
		case 4:
			e.orUnknown(k, v.Capacity)
		case 5:
			e.orUnknown(k, v.Held)
		case 6:
			e.small(k, v.Owed)
		}
	})
}

func (e *encoding) lease(v *Lease) {
	s := setOf(0)
	s.when(1, v.Client != "")
	s.when(2, v.PID != 0)
	s.when(3, v.Seconds != 0)
	s.when(4, v.Pinned != 0)
	s.when(5, v.Reserved != 0)
	s.when(6, v.Bytes != 0)
	s.when(7, v.Waiting)
	e.fields(leaseKeys, s, func(n int, k string) {
		switch n {
		case 0:
			e.text(k, v.Name)
		case 1:
			e.text(k, v.Client)
		case 2:
			e.small(k, v.PID)
		case 3:
			e.orUnknown(k, v.Seconds)
		case 4:
			e.small(k, v.Pinned)
		case 5:
			e.small(k, v.Reserved)
		case 6:
			e.size(k, v.Bytes)
		case 7:
			e.bool(true)
		}
	})
}
