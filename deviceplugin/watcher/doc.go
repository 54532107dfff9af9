// Package watcher admits plugins that register by a socket in a directory, the kubelet's
// plugins_registry. The plugin serves Registration (API pluginregistration v1) on that socket: the
// watcher asks who it is, and tells it whether it was admitted.
//
// Each event of inotify(7), and a tick per second, starts a comparison of the directory with what
// is known: a lost event costs at most a second. Each socket is owned by one goroutine:
//
//	found -> asked -> taken in -> socket removed: told to leave
//	  ^        |          |
//	  `--------'----------'  refused, no answer, or ended: again after a pause that grows
//
// A socket made anew under the same name counts as a new one.
package watcher
