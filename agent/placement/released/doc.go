// Package released tells device plugins that serve lifecyclev1 which devices no pod holds any more.
//
// The releases that plugins have yet to hear of (allocation.PendingRelease) are part of the allocation state: the
// commit that takes devices from a pod adds one, and no pod gets the devices before another commit has
// removed it. So a plugin is told of each release at least once, whatever fails in between.
package released
