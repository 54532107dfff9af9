package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// part is a group of flags in --help. file is set if they belong to fields of the configuration
// file.
type part struct {
	title string
	flags []string
	file  bool
}

// parts returns the groups of flags in --help, in order. Flags in no group go to the second.
func (f *Flags) parts() []part {
	out := []part{
		{title: "numalet's own", flags: append(namesOf(new(Flags).addGroups),
			"topology-from", "device-admission-wait", "refuse-unknown-fields")},
		{title: "The node, its files and its cluster"},
	}
	for _, s := range sections() {
		p := part{title: s.Title, file: true}
		for _, row := range s.Flags {
			p.flags = append(p.flags, row.Flag)
		}
		out = append(out, p)
	}
	logging := func(fs *pflag.FlagSet) { bindLogging(fs, f.fields.shown.DeepCopy()) }
	return append(out,
		part{title: "The agent's log", flags: namesOf(logging), file: true},
		part{title: "Of the kubelet's past, which will go away", flags: namesOf(new(Flags).addPast)})
}

// Help returns the text of --help about flags, at most width columns wide where words allow it.
func (f *Flags) Help(width int) string {
	var b strings.Builder
	parts, named := f.parts(), false
	for i, p := range parts {
		if p.file && !named {
			named = true
			b.WriteString(fileNote)
		}
		fmt.Fprintf(&b, "\n%s:\n%s", p.title, f.pick(parts, i).FlagUsagesWrapped(width))
	}
	return b.String()
}

const fileNote = `
The flags below are the kubelet's for fields of its configuration file, and win over it. Most are
deprecated: set the field in the file given with --config instead. See
https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/
`

// other is the index of the group for flags that no group names.
const other = 1

// pick returns the flags of one part, without notes on deprecation.
func (f *Flags) pick(parts []part, wanted int) *pflag.FlagSet {
	at := map[string]int{}
	for i, p := range parts {
		for _, name := range p.flags {
			at[name] = i
		}
	}
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.set.VisitAll(func(flag *pflag.Flag) {
		i, named := at[flag.Name]
		if !named {
			i = other
		}
		if i == wanted && !flag.Hidden {
			shown := *flag
			shown.Deprecated = ""
			out.AddFlag(&shown)
		}
	})
	return out
}
