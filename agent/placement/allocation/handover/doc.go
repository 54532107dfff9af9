// Package handover carries assignments from one agent to the next: from a kubelet to this one and
// back, and over the loss of the state file.
//
// Export writes the kubelet's files from the state, ReadKubelet reads them; each kind that has
// such a file has a Go file here and a line in kubeletFiles. Containers and sandboxes carry what
// they hold in an annotation (Describe, DescribePod), from which Rebuild brings a state in line
// with what runs.
package handover
