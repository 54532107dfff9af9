// Package dra connects to the drivers of resource claims (Dynamic Resource Allocation), plugins of
// type DRAPlugin in the plugin registry: it has them prepare and unprepare claims, and follows the
// health of their devices.
//
// [Drivers] is told of plugins by package watcher, through [Drivers.Handler]. A driver has one
// instance, or several while it is updated. Each instance is owned by one goroutine of
// [Drivers.Run], which keeps a connection to it:
//
//	registered -> connecting <-> connected     socket removed: left
//
// A call goes to the newest connected instance; without one, to the newest instance, as in the
// kubelet, where it fails unless the instance comes back at once. An instance that leaves answers
// the calls that it has: its connection closes after the last.
//
// A connection never idles out and is made again whenever it breaks. A dead connection that was not
// closed is found out by its silence: a call that got no answer within its deadline, or five minutes
// without any call, has the next call begin with a new connection. Health streams have a connection of
// their own, with HTTP/2 pings.
//
// Answers are bounded and checked here: what is wrong becomes the error of the claim that it
// concerns.
package dra
