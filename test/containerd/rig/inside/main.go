// Inside is the smallest program that can be in place of numalet in an image: it has the
// "container" command and nothing else.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
)

func main() {
	root := &cobra.Command{Use: "numalet"}
	root.AddCommand(workload.Command())
	if root.Execute() != nil {
		os.Exit(1)
	}
}
