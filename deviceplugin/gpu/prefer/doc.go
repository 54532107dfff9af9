// Package prefer chooses which GPUs a container should get, by what is between them: NVLink and
// NVSwitch bandwidth, PCIe switches, NUMA nodes. It is pure.
//
// Of all groups of the size that is asked for, those count
//
//  1. whose weakest NVLink is the strongest: all members wait for the slowest pair in a collective
//     operation; of these, those with the most NVLink bandwidth between all members,
//  2. that leave the best NVLinks to others: the best group of 8 that can still be made, of 4, of
//     2, in a mesh the best 4 once a best pair was taken too, and all that is between those left,
//  3. whose longest PCIe path is the shortest, then those with the shortest paths,
//  4. that leave the best groups to others, PCIe paths counted as well,
//
// in this order. What is still the same is decided by the lowest positions.
//
// The answer is exact, and fast, because of three facts. Two GPUs that have the same links to
// everybody else are interchangeable, so that only how many of each such kind are taken is tried:
// the 8 GPUs of an NVSwitch machine with two sockets are two kinds. What is left is looked at for
// the groups that tie only. Where all NVLinks are alike, nobody's are at stake, and 2 is left out.
// A machine that has more groups to try than maxGroups has more than 16 GPUs that all differ:
// there, groups are grown from each GPU instead.
package prefer
