package cli

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// bashWords is a function of bash that finds the words of a command line, also without the package bash-completion.
//
//go:embed bashwords.sh
var bashWords string

// libraryWords is how cobra's script has the package bash-completion find the words.
const libraryWords = `_get_comp_words_by_ref "$@"`

// completeBash has "completion bash" print a script that needs no other package.
func completeBash(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || cmd.Name() != "bash" {
		panic("there is no completion for bash") // the command was just added
	}
	cmd.Long = fmt.Sprintf(`Print the completion script for bash. It needs no other package.

To have completions in this shell:

	source <(%s completion bash)

In every new one:

	%[1]s completion bash > ~/.local/share/bash-completion/completions/%[1]s

or, without the package bash-completion, which reads that folder, add the first line to ~/.bashrc.`, root.Name())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return writeBash(root, cmd.OutOrStdout()) }
	cmd.Run = nil
}

func writeBash(root *cobra.Command, out io.Writer) error {
	var script bytes.Buffer
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	function := "__" + root.Name() + "_words"
	text := strings.ReplaceAll(script.String(), libraryWords, function+` "$@"`)
	_, err := io.WriteString(out, strings.ReplaceAll(bashWords, "__words", function)+text)
	return err
}
