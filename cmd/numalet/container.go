package main

import (
	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cri/containerd/workload"
)

// newContainerCommand is "numalet container": the programs in the images that are made from this
// executable. It is hidden, since people have no use for it.
func newContainerCommand() *cobra.Command { return workload.Command() }
