package peer

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// figures are the measurements, by agent.
type figures map[string]column

// column has the values of each figure, one of each round.
type column map[string][]float64

func (f figures) of(agent string) column {
	if f[agent] == nil {
		f[agent] = column{}
	}
	return f[agent]
}

func (c column) add(figure string, value float64) { c[figure] = append(c[figure], value) }

// median returns the middle value, of an even number the lower one.
func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(of))[(len(of)-1)/2]
}

// names returns the names of all figures, sorted.
func (f figures) names() []string {
	all := map[string]bool{}
	for _, c := range f {
		for name := range c {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// table shows the medians of both agents, and numalet's in parts of the kubelet's.
func (f figures) table() string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "median of the rounds\tnumalet\tkubelet\tratio\t")
	for _, name := range f.names() {
		ours, theirs := median(f["numalet"][name]), median(f["kubelet"][name])
		ratio := "-"
		if theirs > 0 {
			ratio = fmt.Sprintf("%.2f", ours/theirs)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%s\t\n", name, ours, theirs, ratio)
	}
	_ = w.Flush() // to memory
	return out.String()
}

// write writes the medians as one flat JSON object; "" is no file.
func (f figures) write(file string) error {
	if file == "" {
		return nil
	}
	flat := map[string]float64{}
	for agent, c := range f {
		for name, values := range c {
			flat[name+"_"+agent] = median(values)
		}
	}
	text, err := json.MarshalIndent(flat, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
