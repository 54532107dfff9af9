package playground

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

//go:embed config.yaml
var baseConfig []byte

// own are the settings that depend on the playground's directory and ports.
var own = []string{"staticPodPath", "containerRuntimeEndpoint", "podLogsDir", "address", "readOnlyPort",
	"healthzPort", "cgroupRoot"}

// settings returns the playground's settings, with those of the user's file in their place.
func (o Options) settings() (map[string]any, error) {
	var out map[string]any
	if err := yaml.Unmarshal(baseConfig, &out); err != nil {
		return nil, err
	}
	if o.Runtime != Containerd { // its memory is as full as it is ordered to be
		out["evictionSoft"] = map[string]any{"memory.available": "10%"}
		out["evictionSoftGracePeriod"] = map[string]any{"memory.available": "5s"}
	}
	if o.Config == "" {
		return out, nil
	}
	raw, err := os.ReadFile(o.Config)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	var theirs map[string]any
	if err := yaml.Unmarshal(raw, &theirs); err != nil {
		return nil, fmt.Errorf("--config %s: %w", o.Config, err)
	}
	for _, name := range own {
		if _, is := theirs[name]; is {
			return nil, fmt.Errorf("--config %s: the playground sets %s itself: leave it out", o.Config, name)
		}
	}
	if theirs["evictionSoft"] != nil {
		delete(out, "evictionSoftGracePeriod")
	}
	maps.Copy(out, theirs)
	return out, nil
}

func (g *ground) logsDir() string { return filepath.Join(g.dir, "logs") }

// reserveMemory reserves, for the memory manager, what the settings keep back of the machine's memory, on
// its largest node. A user's file may say where itself.
func reserveMemory(settings map[string]any, machine string) error {
	if settings["reservedMemory"] != nil || settings["memoryManagerPolicy"] != "Static" {
		return nil
	}
	m, err := discover.Open(machine)
	if err != nil {
		return err
	}
	var kept int64
	for _, name := range []string{"systemReserved", "kubeReserved", "evictionHard"} {
		amounts, _ := settings[name].(map[string]any)
		text := fmt.Sprint(cmp.Or(amounts["memory"], amounts["memory.available"], any("0")))
		bytes, err := amountOf(text, m.MemoryBytes())
		if err != nil {
			return fmt.Errorf("%s: memory %s: %w", name, text, err)
		}
		kept += bytes
	}
	if kept == 0 {
		return errors.New("the static memory policy needs memory that is kept back: give systemReserved, " +
			"kubeReserved or evictionHard some")
	}
	largest := slices.MaxFunc(m.Nodes(), func(a, b topology.Node) int {
		return cmp.Compare(a.MemoryBytes, b.MemoryBytes)
	})
	settings["reservedMemory"] = []any{map[string]any{
		"numaNode": largest.ID, "limits": map[string]string{"memory": strconv.FormatInt(kept, 10)},
	}}
	return nil
}

// amountOf returns the bytes of a quantity, or of a percentage of the whole.
func amountOf(text string, whole uint64) (int64, error) {
	if percent, is := strings.CutSuffix(text, "%"); is {
		share, err := strconv.ParseFloat(percent, 32)
		return int64(float64(float32(share)/100) * float64(whole)), err
	}
	q, err := resource.ParseQuantity(text)
	return q.Value(), err
}
