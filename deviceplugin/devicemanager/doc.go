// Package devicemanager is the device manager. It accepts registrations of device plugins (API
// v1beta1), follows their device lists, calls them, and chooses devices for containers.
//
// # Plugins
//
// [Plugins] serves Registration on <dir>/kubelet.sock. Plugins can also register by a socket in the
// plugin registry, which package watcher follows. Each registration becomes a link, owned by one
// goroutine. Its life runs in one direction:
//
//	registered -> dialling -> (empty) -> listing -> closed -> (grace) -> gone
//	                 ^  |                   |
//	                 |--'                   |  no list yet: tried again
//	                 `-------- lost <-------'  list ended: tried again, with pauses, while the
//	                                           plugin lives
//
// A link reports events; one loop applies them to a table and publishes the outcome as an immutable
// [Inventory]. Readers take no lock, and no lock is held while a plugin works: a plugin that hangs
// blocks only its own link, and its callers up to their deadline.
//
// It differs from the kubelet on purpose:
//
//   - A plugin may begin to serve after it registers, as the API's own comment asks. It is dialled
//     until the Dial deadline, with a complaint, since the kubelet refuses such a plugin, as
//     Config.Strict does.
//   - A list that is empty from the start means nothing for a grace: plugins send one before they
//     have looked for devices.
//   - A resource stays with the older plugin until the newer one has sent its first list.
//   - A plugin that registers the same socket again replaces its older connection.
//   - Every call has a deadline.
//   - After a lost connection the list is asked for again, after an end by the plugin itself only
//     after Deadlines.Ended.
//   - The last lists are remembered over restarts (package recall).
//
// # Lists
//
// Every message of ListAndWatch repeats the whole list. A lister compares its bytes with the
// message before, in whatever order, and decodes only what differs; lists share the unchanged
// devices. A message that says the same is no event.
//
// # What plugins say
//
// Messages of plugins are bounded where they arrive: lists and answers to Allocate have a limit, and
// texts are cut to one line; the log at V(4) has the whole.
//
// # Choosing
//
// [Supply], [AdviceWanted] and [Choose] are pure and take the same [Request]: the offer first, then
// perhaps the plugin's advice, then the choice.
package devicemanager
