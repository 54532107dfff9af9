package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// part is flags that --help shows together. file: they are for fields of the configuration file.
type part struct {
	title string
	flags []string
	file  bool
}

// parts are what --help shows of flags, in order. Flags that are in none come in the second.
func (f *Flags) parts() []part {
	own := part{title: "numalet's own", flags: []string{
		"topology-from", "device-admission-wait", "refuse-unknown-fields",
	}}
	own.flags = append(own.flags, f.Placement.names()...)
	own.flags = append(own.flags, f.DevicePlugins.names()...)
	out := []part{own, {title: "The node, its files and its cluster"}}
	for _, s := range sections() {
		p := part{title: s.Title, file: true}
		for _, row := range s.Flags {
			p.flags = append(p.flags, row.Flag)
		}
		out = append(out, p)
	}
	logging := part{title: "The agent's log", file: true}
	past := part{title: "Of the kubelet's past, which will go away"}
	set := pflag.NewFlagSet("", 0)
	bindLogging(set, f.fields.shown.DeepCopy())
	set.VisitAll(func(flag *pflag.Flag) { logging.flags = append(logging.flags, flag.Name) })
	set = pflag.NewFlagSet("", 0)
	new(Flags).addLegacy(set)
	set.VisitAll(func(flag *pflag.Flag) {
		if flag.Deprecated != "" {
			past.flags = append(past.flags, flag.Name)
		}
	})
	return append(out, logging, past)
}

// Help is what --help says of the flags, at most width columns wide where words allow it.
func (f *Flags) Help(width int) string {
	var b strings.Builder
	parts, told := f.parts(), false
	for i, p := range parts {
		if p.file && !told {
			told = true
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

// other is the part of the flags that are in none by name.
const other = 1

// pick has the flags of one part, without the notes on what is deprecated.
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
