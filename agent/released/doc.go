// Package released tells device plugins that serve lifecyclev1 which devices nobody has any more. What
// they are to hear is part of the allocation state from the commit on that takes devices from a pod,
// and the devices are given to nobody before it has been taken out again. So a plugin hears of each
// release at least once, whatever dies in between.
package released
