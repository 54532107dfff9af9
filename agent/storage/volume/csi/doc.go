// Package csi is the node's side of the Container Storage Interface: it knows the drivers that
// registered on the node, plugins of type CSIPlugin in the plugin registry, and calls them.
//
// [Drivers] is told of plugins by package watcher, through [Drivers.Handler]. A driver is registered
// once it has said what it calls this node (NodeGetInfo), until its socket in the registry is
// removed:
//
//	socket found -> versions checked -> NodeGetInfo -> registered -> socket removed: left
//
// Each call has a connection of its own, so none can be dead unnoticed, and a deadline. Nothing is
// locked while a driver is called: one that hangs blocks only the callers that wait for its answer.
package csi
