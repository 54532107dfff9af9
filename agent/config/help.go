package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// section is flags that --help shows together. file: they are for fields of the configuration file.
type section struct {
	title string
	flags []string
	file  bool
}

// sections are what --help shows of flags, in order. Flags that are in none come in the second.
func (f *Flags) sections() []section {
	own := []string{"topology-from", "device-admission-wait"}
	for _, row := range f.DevicePlugins.flags() {
		own = append(own, row.name)
	}
	var past []string
	legacy, logging := pflag.NewFlagSet("", 0), pflag.NewFlagSet("", 0)
	addLegacy(legacy)
	legacy.VisitAll(func(flag *pflag.Flag) {
		if flag.Deprecated != "" {
			past = append(past, flag.Name)
		}
	})
	bindLogging(logging, f.shown.DeepCopy())
	return []section{
		{title: "numalet's own", flags: own},
		{title: "The node, its files and its cluster"},
		{title: "Serving", file: true, flags: append(names(serverFlags()), names(authFlags())...)},
		{title: "Pods", file: true, flags: names(podFlags())},
		{title: "The runtime, images and logs", file: true, flags: names(imageFlags())},
		{title: "Cgroups and resources", file: true, flags: names(resourceFlags())},
		{title: "CPU, memory and topology", file: true, flags: names(managerFlags())},
		{title: "Eviction", file: true, flags: names(evictionFlags())},
		{title: "The node and the API server", file: true, flags: names(nodeFlags())},
		{title: "The agent's log", file: true, flags: namesIn(logging)},
		{title: "Of the kubelet's past, which will go away", flags: past},
	}
}

func names(rows []fieldFlag) (out []string) {
	for _, row := range rows {
		out = append(out, row.flag)
	}
	return out
}

func namesIn(fs *pflag.FlagSet) (out []string) {
	fs.VisitAll(func(flag *pflag.Flag) { out = append(out, flag.Name) })
	return out
}

// Help is what --help says of the flags, at most width columns wide where words allow it.
func (f *Flags) Help(width int) string {
	var b strings.Builder
	sections, told := f.sections(), false
	for i, s := range sections {
		if s.file && !told {
			told = true
			b.WriteString(fileNote)
		}
		fmt.Fprintf(&b, "\n%s:\n%s", s.title, f.pick(sections, i).FlagUsagesWrapped(width))
	}
	return b.String()
}

const fileNote = `
The flags below are the kubelet's for fields of its configuration file, and win over it. Most are
deprecated: set the field in the file given with --config instead. See
https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/
`

// other is the section of the flags that are in none by name.
const other = 1

// pick has the flags of one section, without the notes on what is deprecated.
func (f *Flags) pick(sections []section, wanted int) *pflag.FlagSet {
	at := map[string]int{}
	for i, s := range sections {
		for _, name := range s.flags {
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
