// Package warm fills the cache of a running engine with images that it will be asked about: the pages of documents, for
// example. It sends each image to the engine's OpenAI endpoint with a prompt of a few words, and asks for one token.
// The engine encodes the image, and its connector stores the output.
//
// [Find] looks for images in folders and lists, [Run] sends them. A run that was interrupted goes on where it
// was if it has a state file. The file holds the SHA-256 and size of each image that the engine has answered,
// and the name of the model; it does not show what has been evicted from the cache since then. To begin
// again, remove it.
//
// Errors contain neither bytes of images nor the key of the endpoint.
//
// See docs/decisions.md, "The cache is warmed through a running engine".
package warm
