// Package watcher takes in plugins that make themselves known by a socket in a directory, the
// kubelet's plugins_registry. The plugin serves the Registration service (API pluginregistration
// v1) on that socket: it is asked who it is, and told whether it was taken in.
//
// The directory is compared with what is known on each event of inotify(7) and once a second, so
// that a lost event costs a second. Each socket has one goroutine that owns it:
//
//	found -> asked -> taken in -> socket removed: told to leave
//	  ^        |          |
//	  `--------'----------'  refused, no answer, or ended: again after a pause that grows
//
// A socket that is made anew under the same name is a new one.
package watcher
