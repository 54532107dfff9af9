// Package debug serves information about the agent itself: configuration, flags, build, profiles,
// and the log level.
package debug
