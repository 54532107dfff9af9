package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/component-base/featuregate"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// TestEffectsAreThoseOfTheCode: the table lists a field of the configuration if, and only if, code
// outside this package reads it.
func TestEffectsAreThoseOfTheCode(t *testing.T) {
	table, read := effects(), fieldsRead(t)
	for field := range reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]().Fields() {
		path, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch path {
		case "", "featureGates", "logging", "mergeDefaultEvictionSettings",
			"showHiddenMetricsForVersion": // this package's own
			continue
		}
		said := false
		for name, note := range table {
			said = said || !strings.HasPrefix(note, none) &&
				(name == path || strings.HasPrefix(name, path+"."))
		}
		if said != read[field.Name] {
			t.Errorf("%s: is read: %v; has an effect by the table: %v", path, read[field.Name], said)
		}
	}
}

// fieldsRead returns the names of all fields that the agent's code reads, itself or by Rules.
func fieldsRead(t *testing.T) map[string]bool {
	t.Helper()
	selector, out := regexp.MustCompile(`\.([A-Z]\w*)`), map[string]bool{}
	for _, root := range []string{"../..", "../../../cmd/numalet", "placementflags.go"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && e.Name() == "config":
				return filepath.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(path)
			for _, match := range selector.FindAllSubmatch(text, -1) {
				out[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestGatesOfTheTable: a gate that the table says to work is a gate, and named in the code unless
// it is always on; the library's own excepted.
func TestGatesOfTheTable(t *testing.T) {
	gates, err := newGates()
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, root := range []string{"../..", "../../../cmd/numalet"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	known := gates.GetAll()
	for path, note := range effects() {
		name, is := strings.CutPrefix(path, "featureGates.")
		if !is {
			continue
		}
		spec, ok := known[featuregate.Feature(name)]
		libraries := strings.Contains(name, "Logging") || name == "NativeHistograms" ||
			strings.HasSuffix(name, "CBOR")
		switch {
		case !ok:
			t.Errorf("%s is no gate", name)
		case spec.LockToDefault && note != alwaysOn:
			t.Errorf("%s is locked, so it is always on", name)
		case strings.HasPrefix(note, elsewhere):
		case note != alwaysOn && !libraries && !strings.Contains(code.String(), `"`+name+`"`):
			t.Errorf("%s works by the table, and no code names it", name)
		}
	}
}

// TestEveryGate: a gate that is set either does what it says or is named.
func TestEveryGate(t *testing.T) {
	gates, err := newGates()
	if err != nil {
		t.Fatal(err)
	}
	table := effects()
	for name, spec := range gates.GetAll() {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		for _, on := range []bool{false, true} {
			if spec.LockToDefault && on != spec.Default {
				continue
			}
			path, needs := "featureGates."+string(name), ""
			if on && name == "DRAWorkloadResourceClaims" {
				needs = ",GenericWorkload=true"
			}
			note, listed := table[path]
			does := on // what the agent does
			switch {
			case note == alwaysOn:
				does = true
			case !listed:
				does = false
			case strings.HasPrefix(note, elsewhere):
				note = ""
			}
			got := mustLoad(t, t.TempDir(), fmt.Sprintf("--feature-gates=%s=%t%s", name, on,
				needs)).Unhonoured()
			named := len(got) == 1 && strings.HasPrefix(got[0], path)
			if want := does != on || listed && note != "" && note != alwaysOn; named != want {
				t.Errorf("%s=%t: reported %q, want that: %t", name, on, got, want)
			}
		}
	}
}

// TestGatesOfClaimsAndDrivers: what the agent does with resource claims and drivers of volumes is not
// reported as without effect.
func TestGatesOfClaimsAndDrivers(t *testing.T) {
	got := mustLoad(t, t.TempDir(), "--feature-gates=DynamicResourceAllocation=true,"+
		"DRAExtendedResource=true,DRAConsumableCapacity=true,KubeletPodResourcesDynamicResources=true,"+
		"ResourceHealthStatusMessage=true,CSIServiceAccountTokenSecrets=true,"+
		"MutableCSINodeAllocatableCount=true,RecoverVolumeExpansionFailure=true").Unhonoured()
	if len(got) > 0 {
		t.Errorf("without effect: %q", got)
	}
}

// TestWithoutEffect: only settings that Kubernetes itself has given up are accepted without effect.
func TestWithoutEffect(t *testing.T) {
	gates, err := newGates()
	if err != nil {
		t.Fatal(err)
	}
	table, got := effects(), []string{}
	for name := range gates.GetAll() {
		if _, listed := table["featureGates."+string(name)]; !listed && name != "AllAlpha" && name != "AllBeta" {
			got = append(got, string(name))
		}
	}
	slices.Sort(got)
	want := []string{"GitRepoVolumeDriver"}
	if !slices.Equal(got, want) {
		t.Errorf("gates without effect:\n%q, want\n%q", got, want)
	}
}

// TestSettingsWithoutEffect: all settings and flags have an effect or have none for a reason.
func TestSettingsWithoutEffect(t *testing.T) {
	table, got := effects(), []string{}
	for path, note := range table {
		if strings.HasPrefix(note, none) {
			got = append(got, path)
		}
	}
	for field := range reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]().Fields() {
		path, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if _, listed := lookup(table, path); !listed && path != "" && path != "featureGates" {
			got = append(got, path)
		}
	}
	for _, name := range namesOf(new(Flags).add) {
		if _, listed := lookup(table, "--"+name); !listed {
			got = append(got, "--"+name)
		}
	}
	slices.Sort(got)
	want := []string{"--housekeeping-interval", "hairpinMode", "iptablesDropBit", "iptablesMasqueradeBit",
		"runOnce", "volumePluginDir"}
	if !slices.Equal(got, want) {
		t.Errorf("settings without effect:\n%q, want\n%q", got, want)
	}
}

// TestGatesThatNeedOthers: as with the kubelet.
func TestGatesThatNeedOthers(t *testing.T) {
	if _, err := load(t, t.TempDir(), "--feature-gates=DRAWorkloadResourceClaims=true"); err == nil ||
		!strings.Contains(err.Error(), "GenericWorkload") {
		t.Errorf("claims of workloads without workloads: %v", err)
	}
}
