//go:build !manual

package cli

import "github.com/spf13/cobra"

// AddManual adds nothing: the program was built without the tag "manual".
func AddManual(*cobra.Command) {}
