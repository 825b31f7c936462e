package pycompat

import "errors"

// UpstreamText returns the text of vLLM's own error for the same failure, or ""
// where vLLM has none. It looks for a method UpstreamText in err's tree.
func UpstreamText(err error) string {
	var u interface{ UpstreamText() string }
	if errors.As(err, &u) {
		return u.UpstreamText()
	}
	return ""
}
