package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nearest is the largest edit distance at which a flag is suggested for an unknown one.
const nearest = 3

// SuggestFlag adds to the error about an unknown flag the one that the user may have meant.
func SuggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	best, off := "", min(nearest, len(name)/2)+1
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if d := levenshtein.ComputeDistance(name, f.Name); d < off {
			best, off = f.Name, d
		}
	})
	if best == "" {
		return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
	}
	return fmt.Errorf("%w; did you mean --%s?", err, best)
}

// CheckCommand returns an error if the words of a call, or of one for help, name a subcommand that there is not. At
// some depths, and with --help, cobra prints the help of the command above it instead.
func CheckCommand(root *cobra.Command, words []string) error {
	if len(words) > 0 && words[0] == "help" {
		words = words[1:]
	}
	if len(words) > 0 && strings.HasPrefix(words[0], cobra.ShellCompRequestCmd) {
		return nil
	}
	cmd, rest, _ := root.Find(words)
	if !cmd.HasSubCommands() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil
	}
	return unknownCommand(cmd, rest[0])
}

// unknownCommand is the error about a subcommand that there is not, with those that the user may have meant.
func unknownCommand(cmd *cobra.Command, word string) error {
	cmd.SuggestionsMinimumDistance = max(cmd.SuggestionsMinimumDistance, 2)
	meant := ""
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		meant = "did you mean " + strings.Join(near, " or ") + "? "
	}
	return fmt.Errorf("%s has no %q: %s%[1]s --help lists what it has", cmd.CommandPath(), word, meant)
}

// choice is a flag whose value is one of a few words.
type choice struct {
	value *string
	of    []string
}

// Choose adds a flag that takes one of the words; the first is the default. The help text is what,
// which ends like "how to print", followed by the list of words.
func Choose(flags *pflag.FlagSet, value *string, name, short, what string, of ...string) {
	*value = of[0]
	c := choice{value, of}
	flags.VarP(c, name, short, what+": "+c.list())
}

func (c choice) Type() string   { return "string" }
func (c choice) String() string { return *c.value }

func (c choice) Set(text string) error {
	if !slices.Contains(c.of, text) {
		return fmt.Errorf("use %s", c.list())
	}
	*c.value = text
	return nil
}

func (c choice) list() string {
	last := len(c.of) - 1
	return strings.Join(c.of[:last], ", ") + " or " + c.of[last]
}
