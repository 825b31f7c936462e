package paged

// A Layout is the order of the dimensions of an engine's KV buffers. The names are LMCache's (EngineKVFormat
// in lmcache/lmcache_native.pyi of 0.5.6): "_X_" separates tensors of their own from the dimensions of one
// tensor, NL is layers, TWO keys and values, NB blocks, BS the tokens of a block, NH heads, HS elements of a
// head, CS those of a head whose keys and values stand side by side.
type Layout string

// The layouts of vLLM, and those of SGLang, TensorRT-LLM and vLLM-Ascend that differ from them only in the
// places of dimensions.
const (
	FlashAttention      Layout = "NL_X_TWO_NB_BS_NH_HS" // vLLM's flash attention, NHD
	FlashAttentionHND   Layout = "NL_X_TWO_NB_NH_BS_HS" // also vLLM's attention on CPUs
	FlashInfer          Layout = "NL_X_NB_TWO_BS_NH_HS"
	FlashInferHND       Layout = "NL_X_NB_TWO_NH_BS_HS"
	Packed              Layout = "NL_X_NB_BS_NH_CS" // one plane: HeadSize is that of a key and a value together
	PackedHND           Layout = "NL_X_NB_NH_BS_CS"
	MLA                 Layout = "NL_X_NB_BS_HS"          // one plane and one head
	SeparateByLayer     Layout = "NL_X_TWO_X_NB_BS_NH_HS" // vLLM-Ascend: keys and values of a layer, then the next
	SeparateByPlane     Layout = "TWO_X_NL_X_NB_BS_NH_HS" // SGLang: keys of all layers, then values of all
	AllLayersOfBlock    Layout = "NB_NL_TWO_BS_NH_HS"     // one tensor: vLLM with cross-layer blocks
	AllLayersOfBlockHND Layout = "NB_NL_TWO_NH_BS_HS"     // one tensor: TensorRT-LLM
)

// A row of the table says in which order the dimensions stand, from the outermost to the innermost: 'L'
// layers, '2' planes, 'B' blocks, 'T' tokens of a block, 'H' heads. Those in front of the bar are tensors of
// their own.
var orders = map[Layout]string{
	FlashAttention: "L|2BTH", FlashAttentionHND: "L|2BHT",
	FlashInfer: "L|B2TH", FlashInferHND: "L|B2HT",
	Packed: "L|BTH", PackedHND: "L|BHT", MLA: "L|BTH",
	SeparateByLayer: "L2|BTH", SeparateByPlane: "2L|BTH",
	AllLayersOfBlock: "|BL2TH", AllLayersOfBlockHND: "|BL2HT",
}

// Planes returns 2 if keys and values lie apart, 1 if not, and 0 for a layout that does not exist.
func (l Layout) Planes() int {
	order, ok := orders[l]
	if !ok {
		return 0
	}
	for _, d := range order {
		if d == '2' {
			return 2
		}
	}
	return 1
}
