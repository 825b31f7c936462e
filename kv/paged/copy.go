package paged

// Gather copies the KV of all layers from slots into a chunk of the format that Layout.Whole returns. The
// chunk has Geometry.ChunkBytes of as many tokens as there are slots.
func (b *Buffers) Gather(chunk []byte, slots []int64) error {
	return b.whole(chunk, slots, true)
}

// Scatter copies a chunk of all layers into slots. It is the reverse of Gather.
func (b *Buffers) Scatter(slots []int64, chunk []byte) error {
	return b.whole(chunk, slots, false)
}

// GatherLayer copies the KV of one layer from slots into a chunk: KVT2D or KV2TD, or KVMLA of buffers with
// one plane.
func (b *Buffers) GatherLayer(chunk []byte, f Format, layer int, slots []int64) error {
	return b.layer(chunk, f, layer, slots, true)
}

// ScatterLayer copies a chunk of one layer into slots. It is the reverse of GatherLayer.
func (b *Buffers) ScatterLayer(slots []int64, layer int, f Format, chunk []byte) error {
	return b.layer(chunk, f, layer, slots, false)
}

func (b *Buffers) whole(chunk []byte, slots []int64, gather bool) error {
	if err := b.Check(slots); err != nil {
		return err
	}
	if n := b.g.ChunkBytes(len(slots), false); len(chunk) != n {
		return refuse("a chunk of %d bytes; %d tokens in %d layers are %d", len(chunk), len(slots), b.g.Layers, n)
	}
	tokens := len(slots) * b.row
	for layer := range b.g.Layers {
		b.copy(layer, chunk[layer*tokens:], b.row, b.g.Layers*tokens, slots, gather)
	}
	return nil
}

func (b *Buffers) layer(chunk []byte, f Format, layer int, slots []int64, gather bool) error {
	if err := b.Check(slots); err != nil {
		return err
	}
	if layer < 0 || layer >= b.g.Layers {
		return refuse("layer %d of %d", layer, b.g.Layers)
	}
	if !f.layered(b.planes) {
		return refuse("chunks of one layer of the layout %s have not the format %v", b.g.Layout, f)
	}
	if n := b.g.ChunkBytes(len(slots), true); len(chunk) != n {
		return refuse("a chunk of %d bytes; %d tokens in one layer are %d", len(chunk), len(slots), n)
	}
	if len(slots) == 0 {
		return nil
	}
	apart, plane := b.row, len(slots)*b.row
	if f == KVT2D {
		apart, plane = b.planes*b.row, b.row
	}
	b.copy(layer, chunk, apart, plane, slots, gather)
	return nil
}

// maxTokens bounds a call, so that the size of its chunk does not overflow.
const maxTokens = 1 << 28

// Check refuses slots that are not there. Negative ones are skipped, whatever they are.
func (b *Buffers) Check(slots []int64) error {
	if len(slots) > maxTokens {
		return refuse("%d slots in a call; the most is %d", len(slots), maxTokens)
	}
	for i, s := range slots {
		if s >= int64(b.Slots()) {
			return refuse("the slot of token %d is %d; there are %d", i, s, b.Slots())
		}
	}
	return nil
}

// copy moves one layer. In the chunk, tokens and planes are so many bytes apart. Nothing can be refused any
// more.
func (b *Buffers) copy(layer int, chunk []byte, apart, plane int, slots []int64, gather bool) {
	if b.rows && apart == b.row { // tokens lie one behind the other on both sides
		for p := range b.planes {
			b.copyRuns(b.plane(layer, p), chunk[p*plane:], slots, gather)
		}
		return
	}
	// Token by token: what is written to a chunk of one layer lies one behind the other.
	for i, slot := range slots {
		if slot < 0 {
			continue
		}
		for p := range b.planes {
			b.copyToken(b.plane(layer, p)[b.offset(slot):], chunk[i*apart+p*plane:], gather)
		}
	}
}

// offset returns where a slot is in its plane.
func (b *Buffers) offset(slot int64) int {
	return int(slot)/b.g.BlockTokens*b.block + int(slot)%b.g.BlockTokens*b.token
}

// copyRuns moves one plane of one layer, with slots that follow each other at once.
func (b *Buffers) copyRuns(plane, chunk []byte, slots []int64, gather bool) {
	for i := 0; i < len(slots); {
		if slots[i] < 0 {
			i++
			continue
		}
		n := b.run(slots[i:])
		move(plane[b.offset(slots[i]):][:n*b.row], chunk[i*b.row:], gather)
		i += n
	}
}

// copyToken moves one token of one layer and plane.
func (b *Buffers) copyToken(paged, chunk []byte, gather bool) {
	if b.rows {
		move(paged[:b.row], chunk, gather)
		return
	}
	chunk = chunk[:b.row]
	if gather {
		for h := 0; len(chunk) > 0; h += b.step {
			chunk = chunk[copy(chunk, paged[h:][:b.head]):]
		}
		return
	}
	for h := 0; len(chunk) > 0; h += b.step {
		chunk = chunk[copy(paged[h:][:b.head], chunk):]
	}
}

// move copies as many bytes as paged has, from it or to it.
func move(paged, chunk []byte, gather bool) {
	if gather {
		copy(chunk, paged)
	} else {
		copy(paged, chunk[:len(paged)])
	}
}

// run returns how many slots from the first one on follow each other in memory.
func (b *Buffers) run(slots []int64) int {
	most := len(slots)
	if !b.flat {
		most = min(most, b.g.BlockTokens-int(slots[0])%b.g.BlockTokens)
	}
	n := 1
	for n < most && slots[n] == slots[0]+int64(n) {
		n++
	}
	return n
}
