package playground

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A user's file replaces settings, and what is reserved follows its thresholds.
func TestSettings(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct{ file, want string }{
		"none":       {"", fmt.Sprint(gib + 100<<20)},
		"thresholds": {"evictionHard: {memory.available: 600Mi}\n", fmt.Sprint(gib + 600<<20)},
		"a percentage": {"evictionHard: {memory.available: 1%}\nsystemReserved: {cpu: 1}\n",
			fmt.Sprint(int64(float64(float32(0.01)) * 256 * gib))},
		"kube and system":        {"kubeReserved: {memory: 2Gi}\n", fmt.Sprint(3*gib + 100<<20)},
		"another policy":         {"memoryManagerPolicy: None\n", "none"},
		"reserved by themselves": {"reservedMemory: [{numaNode: 1, limits: {memory: 1124Mi}}]\n", "1124Mi"},
	} {
		o := Options{}
		if test.file != "" {
			o.Config = filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(o.Config, []byte(test.file), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		settings, err := o.settings()
		if err == nil {
			err = reserveMemory(settings, "fixture:playground")
		}
		got := "none"
		if all, is := settings["reservedMemory"].([]any); is {
			switch limits := all[0].(map[string]any)["limits"].(type) {
			case map[string]string:
				got = limits["memory"]
			case map[string]any:
				got = fmt.Sprint(limits["memory"])
			}
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %s is reserved (%v), want %s", name, got, err, test.want)
		}
		if settings["cpuManagerPolicy"] != "static" {
			t.Errorf("%s: the other settings are gone: %v", name, settings)
		}
	}
}
