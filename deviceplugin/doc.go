// Package deviceplugin is the device manager: it takes registrations of device plugins (API
// v1beta1), follows their device lists, calls them, and chooses devices for containers.
//
// # Plugins
//
// [Plugins] serves Registration on <dir>/kubelet.sock. Plugins can register by a socket in
// the plugin registry as well, which package watcher follows. Each registration becomes a link,
// with one goroutine that owns it and a life in one direction:
//
//	registered -> dialling -> (empty) -> listing -> closed -> (grace) -> gone
//	                 ^  |                   |
//	                 |--'                   |  no list yet: tried again
//	                 `-------- lost <-------'  list ended: tried again, with pauses, while the
//	                                           plugin lives
//
// A link reports what happens to it as events; one loop applies them to a table, and publishes
// the outcome as an immutable [Inventory]. Readers take no lock, and no lock exists that could be
// held while a plugin thinks: a plugin that hangs keeps only its own link, and its callers up to
// their deadline, waiting.
//
// Where it differs from the kubelet, on purpose: a plugin that does not serve yet when it registers
// is dialled afterwards, with retries for the Dial deadline, so that it may begin to serve then (the
// API's own comment asks for that order), which is told, since the kubelet refuses it
// (Config.Strict does as well); a list that is empty from the start means
// nothing for a grace, since plugins send one before they have looked; the resource stays with
// the older plugin until the newer one has sent its first list; a plugin that registers the same
// socket again replaces its older connection; every call has a deadline; a list whose connection was
// lost is asked for again, and one that the plugin ended after Deadlines.Ended; what plugins said
// last is remembered over restarts.
//
// # Lists
//
// Every message of ListAndWatch repeats the whole list. A lister compares it with the bytes of the
// one before, whatever the order, and decodes what differs; lists share the devices that have not
// changed. A message that says the same is no event.
//
// # What plugins say
//
// What a plugin says is bounded where it comes in: lists and answers to Allocate have a limit, and
// texts are cut to one line, with the whole in the log at V(4).
//
// # Choosing
//
// [Supply], [AdviceWanted] and [Choose] are pure. They work on one [Request]: an offer is
// computed, the plugin may be asked for advice in between, and the choice is made from the same
// values.
package deviceplugin
