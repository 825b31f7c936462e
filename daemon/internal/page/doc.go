// Package page is the page of a daemon for people: levels and how full they were within the last hour, hit rates,
// how long calls take, sessions and what they hold, pending writes, events, the segment drawn, and a search for an
// object.
//
// A [Page] has an HTTP handler ([Page.Handler]) and a stream of server-sent events ([Page.Stream]). The daemon gives
// it what to show by the functions of [Options]. It only looks: it has no request that changes anything, and no
// method but GET and HEAD.
//
// # What is on the wire
//
// The page is rendered by html/template, whole, so that it can be read without a script. Its parts are sent again as
// events, as HTML, when they have changed; a script of a hundred lines puts them in their places. There is no build
// step, and the Content-Security-Policy allows nothing from elsewhere, and no script or style inside the page: so
// bars and curves are attributes of SVG. Texts that clients have chosen are quoted where they have characters that
// are not seen, and escaped by their place.
//
// # What it costs
//
// Every [Step] a goroutine reads counters, whether somebody looks or not: an hour of them is kept, in a ring of fixed
// size. Everything else is done only while a page is open, and once for all who look: the parts are rendered into
// shared bytes, and a stream that is slow skips what has been replaced meanwhile. One that takes nothing for ten
// seconds is closed. There are at most [Options].Streams. The map reads the table of the segment, and rests for a
// hundred times as long as that took; a search rests for as long as it works, and there is one at a time.
//
// See docs/decisions.md, "The page reads counters, and its parts are rendered once for all".
//
// # Lifetimes and concurrency
//
// Methods may be called from any goroutine. [Page.Run] is the goroutine that looks; when it ends, streams end too.
package page
