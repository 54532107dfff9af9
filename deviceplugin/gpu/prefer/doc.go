// Package prefer chooses a container's GPUs by the links between them: NVLink and NVSwitch
// bandwidth, PCIe switches, NUMA nodes. It is pure.
//
// Among all groups of the requested size it selects, in this order, those
//
//  1. whose weakest NVLink is the strongest, since in a collective operation all members wait for
//     the slowest pair; of these, those with the most NVLink bandwidth between all members,
//  2. that leave the best NVLinks to others: the best remaining group of 8, of 4, of 2, in a mesh
//     the best 4 after a best pair was taken too, and the sum of all remaining links,
//  3. whose longest PCIe path is the shortest, then those with the shortest paths,
//  4. that leave the best groups to others, PCIe paths included.
//
// The lowest positions break the remaining ties.
//
// The answer is exact and fast for three reasons. GPUs with the same links to all others are
// interchangeable, so only the number of each kind matters: the 8 GPUs of an NVSwitch machine with
// two sockets are two kinds. Only tied groups are judged by what they leave. If all NVLinks are
// alike, step 2 is skipped. A machine with more than maxGroups groups has more than 16 GPUs that
// all differ; there, groups are grown from each GPU instead.
package prefer
