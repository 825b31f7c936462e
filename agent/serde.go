package agent

import (
	"encoding/hex"

	"github.com/ringcache/ringcache/serde"
)

func serdeOps() map[string]operation {
	return map[string]operation{
		"serde.encode":   {"value generation treat_as threshold", serdeEncode},
		"serde.decode":   {"frames kind generation treat_as", serdeDecode},
		"serde.metadata": {"hex", serdeMetadata},
		"address_item":   {"address id signature generation treat_as modality", addressItem},
	}
}

func serdeEncode(p *params) (reply, error) {
	o := serde.Options{Generation: p.generation(), InlineThreshold: p.threshold()}
	v := p.value("value", false)
	plan, err := serde.NewPlan(v, o)
	if err != nil {
		return nil, err
	}
	out := hexFrames(plan.Frames())
	out["metadata"] = hex.EncodeToString(plan.Metadata)
	return out, nil
}

func serdeDecode(p *params) (reply, error) {
	o := serde.Options{Generation: p.generation()}
	frames := p.frames()
	kind := p.str("kind")
	var v serde.Value
	var err error
	switch kind {
	case "item":
		v, err = serde.DecodeItem(frames, o)
	case "tensor":
		v, err = serde.DecodeTensor(frames, o)
	default:
		err = invalidf("unknown kind %q, want item or tensor", kind)
	}
	if err != nil {
		return nil, err
	}
	return reply{"value": encodeValue(v)}, nil
}

func serdeMetadata(p *params) (reply, error) {
	m, _, err := serde.ParseMetadata(p.hex("hex"))
	return reply{"type": m.Type, "nbytes": m.NBytes, "lens": m.Lens}, err
}

func addressItem(p *params) (reply, error) {
	h, g := p.handle(), p.generation()
	modality := optional(p, "modality", "image")
	b, err := serde.EncodeAddress(h, modality, serde.Options{Generation: g})
	return reply{"hex": hex.EncodeToString(b)}, err
}
