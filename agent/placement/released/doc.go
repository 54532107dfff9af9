// Package released tells device plugins that serve lifecyclev1 which devices no pod holds any more.
//
// What plugins have to be told (allocation.Owed) is part of the allocation state: the commit that
// takes devices from a pod adds it, and no pod gets the devices before another commit has removed
// it. So a plugin is told of each release at least once, whatever fails in between.
package released
