package serde

import (
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/codec"
	"github.com/ringcache/ringcache/pycompat"
)

// The document of an address item has few parts that vary. These are the others: the
// names of an elem, its key, and its field, which is batched.
const (
	textAddress   = "\xa7" + keyAddress
	textID        = "\xac" + keyID
	textSignature = "\xa9" + keySignature

	batchedNamed      = "\x92\xa7batched\x81" + textKeep + "\xc2"
	batchedPositional = "\x91\xa7batched"

	signatureHead = "\xdc\x00\x20" // of an array of 32
)

// addressRoom is the length of the longest address item without modalities.
const addressRoom = 240

// EncodeAddress returns the main document, and only frame, of the address item.
// A generation with signed handles needs a signature, any other must have none.
// The error wraps [fs.ErrInvalid].
func EncodeAddress(a Address, modality string, o Options) ([]byte, error) {
	return AppendAddress(make([]byte, 0, addressRoom), a, modality, o)
}

// AppendAddress is [EncodeAddress] that appends to dst. It returns dst with an error.
func AppendAddress(dst []byte, a Address, modality string, o Options) ([]byte, error) {
	g, err := pycompat.Resolve(o.Generation)
	if err != nil {
		return dst, err
	}
	switch {
	case g.Signed && a.Signature.IsZero():
		return dst, codec.Invalid("address item", "it has no signature, and vLLM %s needs one", g.Version)
	case !g.Signed && !a.Signature.IsZero():
		return dst, codec.Invalid("address item", "vLLM %s does not know signatures; leave it zero", g.Version)
	case g.ItemForm == pycompat.ItemMap:
	case modality == "":
		return dst, codec.Invalid("address item", "vLLM %s needs a modality", g.Version)
	case !utf8.ValidString(modality):
		return dst, codec.Invalid("address item", "the modality %.64q is not UTF-8", modality)
	}
	w := addressWriter{dst, g.ItemForm, modality}
	w.item(&a)
	return w.doc, nil
}

type addressWriter struct {
	doc      []byte
	form     pycompat.ItemForm
	modality string
}

func (w *addressWriter) literal(s string) { w.doc = append(w.doc, s...) }

func (w *addressWriter) item(a *Address) {
	n := uint32(2)
	if !a.Signature.IsZero() {
		n++
	}
	if w.form == pycompat.ItemMap {
		w.doc = msgp.AppendMapHeader(w.doc, n)
	} else {
		w.doc = msgp.AppendArrayHeader(w.doc, n)
	}
	w.begin(textAddress)
	w.doc = msgp.AppendUint64(w.doc, a.Address)
	w.end()
	w.begin(textID)
	w.doc = msgp.AppendUint64(w.doc, uint64(a.ID))
	w.end()
	if n == 2 {
		return
	}
	w.begin(textSignature)
	w.literal(signatureHead)
	for _, b := range a.Signature {
		w.doc = msgp.AppendUint64(w.doc, uint64(b))
	}
	w.end()
}

// begin writes what comes before the data of an elem.
func (w *addressWriter) begin(key string) {
	if w.form == pycompat.ItemMap {
		w.literal(key)
		w.literal("\x82" + textData)
		return
	}
	w.literal("\x84" + textModality)
	w.doc = msgp.AppendString(w.doc, w.modality)
	w.literal(textKey)
	w.literal(key)
	w.literal(textData)
}

// end writes what comes behind the data of an elem.
func (w *addressWriter) end() {
	if w.form == pycompat.ItemPositional {
		w.literal(textField + batchedPositional)
	} else {
		w.literal(textField + batchedNamed)
	}
}
