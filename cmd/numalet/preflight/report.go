package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Level says what a finding means for the node.
type Level string

// The levels, the gravest last.
const (
	Same          Level = "same"           // as with the kubelet
	Better        Level = "better"         // more than with the kubelet
	Note          Level = "note"           // worth knowing; nothing has to be done
	WithoutEffect Level = "without effect" // of a setting
	Changes       Level = "changes"        // a pod would wait, or have or be something else
	Blocks        Level = "blocks"         // the agent would not start, or would run no pods
)

// Sections of a report, in its order.
const (
	Configuration = "configuration"
	Runtime       = "runtime"
	Cgroups       = "cgroups"
	Pods          = "pods"
	Plugins       = "plugins and drivers"
	Versions      = "versions"
)

// Finding is one thing that was looked at.
type Finding struct {
	Section string `json:"section"`
	// Subject is a setting, a pod, a plugin.
	Subject string `json:"subject"`
	Level   Level  `json:"level"`
	Text    string `json:"text,omitempty"`
	// Advice says what to do about it.
	Advice string `json:"advice,omitempty"`
}

// Report is the answer about a node.
type Report struct {
	// Ready is set if nothing blocks, and nothing of a pod changes.
	Ready bool   `json:"ready"`
	Node  string `json:"node,omitempty"`
	// CommandLine has the flags that the agent would have, and From says where they are from.
	CommandLine []string  `json:"commandLine"`
	From        string    `json:"from"`
	Findings    []Finding `json:"findings"`
}

func (r *Report) add(section, subject string, level Level, format string, args ...any) *Finding {
	r.Findings = append(r.Findings, Finding{Section: section, Subject: subject, Level: level,
		Text: fmt.Sprintf(format, args...)})
	return &r.Findings[len(r.Findings)-1]
}

// worst returns the gravest level.
func (r *Report) worst() Level {
	order := []Level{Same, Better, Note, WithoutEffect, Changes, Blocks}
	worst := 0
	for _, f := range r.Findings {
		worst = max(worst, slices.Index(order, f.Level))
	}
	return order[worst]
}

// Text formats the report: what is the same is counted, everything else is listed.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The flags are those of %s:\n  %s\n", r.From,
		cmp.Or(strings.Join(r.CommandLine, " "), "(none)"))
	for _, section := range []string{Configuration, Runtime, Cgroups, Pods, Plugins, Versions} {
		r.writeSection(&b, section)
	}
	b.WriteString("\n" + r.verdict() + "\n")
	return b.String()
}

func (r *Report) writeSection(b *strings.Builder, section string) {
	var same []string
	var rest []Finding
	for _, f := range r.Findings {
		switch {
		case f.Section != section:
		case f.Level == Same && f.Text == "":
			same = append(same, f.Subject)
		default:
			rest = append(rest, f)
		}
	}
	if len(same)+len(rest) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", strings.ToUpper(section[:1])+section[1:])
	if len(same) > 0 {
		fmt.Fprintf(b, "  the same: %s\n", strings.Join(same, ", "))
	}
	columns := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, f := range rest {
		text := f.Text
		if f.Advice != "" {
			text += "; " + f.Advice
		}
		fmt.Fprintf(columns, "  %s\t%s\t%s\n", f.Level, f.Subject, text)
	}
	columns.Flush()
}

func (r *Report) verdict() string {
	switch r.worst() {
	case Blocks:
		return "Not ready: what blocks has to be changed first."
	case Changes:
		return "The agent would start, and something of a pod would change: see what says \"changes\"."
	}
	return "Ready: stop the kubelet and start numalet. Pods go on."
}
