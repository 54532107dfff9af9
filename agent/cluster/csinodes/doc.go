// Package csinodes tells the cluster which CSI drivers the node has: its CSINode, the annotation with
// the drivers' node ids, and the labels of the node for their topologies.
//
//	what drivers say --.
//	the node's object --+--> plan (pure) -> patch of the node -> CSINode created or updated
//	its CSINode -------'
//
// The node is written first: a scheduler that finds a driver in the CSINode finds the labels of its
// topology keys. A driver whose topology contradicts a label of the node is refused: it is in no
// CSINode until one of them changes, and scheduled volumes avoid the node.
package csinodes
